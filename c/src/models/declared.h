/* declared.h: what a model's configuration file says that its graph does not; HTTP repeats it to
 * clients. Opened and closed by the control thread; in between read-only. */
#ifndef LM_MODELS_DECLARED_H
#define LM_MODELS_DECLARED_H

#include <stdbool.h>

#include "lumen.h"
#include "onnx/tensor.h"

struct lm_declared_tensor {
    char *name;
    char *label_file; /* NULL: none */
    uint32_t format;  /* LUMEN_FORMAT_* */
    bool is_output;
    uint32_t rank; /* of the shape for clients; -1: the rows */
    int64_t dims[LM_RANK_MAX];
    struct lm_tensor *client; /* room for the tensor in this shape; NULL: it has the graph's */
};

struct lm_declared {
    char *file_name; /* of the model; NULL: the usual one */
    struct lm_declared_tensor *tensors;
    uint32_t count;
    bool no_rows; /* clients see no dimension for the batch */
};

/* Copies what the configuration says. Returns 0, LUMEN_E_INVALID or LUMEN_E_NOMEM. */
int lm_declared_open(struct lm_declared *declared, const lumen_model_config *config);
void lm_declared_close(struct lm_declared *declared);
/* The entry of a tensor; NULL: the file does not declare it. */
struct lm_declared_tensor *lm_declared_find(const struct lm_declared *declared, const char *name,
                                            bool is_output);

#endif
