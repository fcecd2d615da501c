/* binding.h: a request's tensors as ONNX Runtime takes them: wrapped where they lie, strings
 * copied; and what it made, taken out again. Of the thread that has the request.
 */
#ifndef LM_MODELS_BINDING_H
#define LM_MODELS_BINDING_H

#include "models/layout.h"
#include "onnx/ort.h"

/* Tensors wrapped over one slot's memory for one model; rebuilt only when sizes or memory change.
 * Strings are copied into tensors of ONNX Runtime's, which keep their memory for the next ones. */
struct lm_binding {
    void *base;
    struct lm_sizes sizes;  /* rows 0: nothing wrapped */
    size_t string_bytes;    /* that its string tensors hold, at most */
    uint64_t string_allocs; /* that they took since somebody set this to 0 */
};

/* `values` has room for input_count + output_count. Returns 0 or LUMEN_E_ORT. */
int lm_model_bind(const struct lm_model *model, const struct lm_ort *ort,
                  const struct lm_layout *layout, const struct lm_sizes *sizes,
                  struct lm_binding *binding, OrtValue **values);
/* Copies the strings of a request to its string tensors, whose first row is `row`; the lengths have
 * been checked (strings.h). Returns 0 or LUMEN_E_ORT. */
int lm_model_fill_strings(const struct lm_model *model, const struct lm_ort *ort,
                          const struct lm_layout *layout, const struct lm_sizes *sizes,
                          uint32_t row, struct lm_binding *binding, OrtValue **values);
void lm_model_unbind(const struct lm_model *model, const struct lm_ort *ort,
                     struct lm_binding *binding, OrtValue **values);
/* Whether ONNX Runtime writes this output to memory of ours, or allocates it. */
bool lm_output_is_wrapped(const struct lm_tensor *output, uint32_t rows);
/* The elements of an output. Returns 0 or LUMEN_E_ORT. */
int lm_model_count_elements(const struct lm_ort *ort, const OrtValue *value, size_t *count_out);
/* Whether an output has as many elements as are known beforehand. Returns 0 or LUMEN_E_ORT. */
int lm_model_check_count(const struct lm_ort *ort, const struct lm_tensor *output,
                         const OrtValue *value, const struct lm_sizes *sizes);
int lm_model_take_output(const struct lm_ort *ort, const struct lm_tensor *output, OrtValue **value,
                         void *place, size_t bytes);

#endif
