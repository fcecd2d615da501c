/* model.h: one served model: what its tensors are, how a request lies in a slot, its sessions.
 *
 * Opened and closed by the control thread. Afterwards everything is read-only, except that worker w
 * alone runs sessions[w], and that a slot's values belong to whoever holds the slot.
 *
 * What can be served: every input and output a tensor of numbers or bools, of at most LM_RANK_MAX
 * dimensions. A free first dimension of the inputs is the request's "rows"; up to LM_FREE_DIMS_MAX
 * others may be free, and those of one name have one size in a request. Outputs may have any shape:
 * one that does not follow from these sizes is allocated by ONNX Runtime and copied once.
 */
#ifndef LM_PARTS_MODEL_H
#define LM_PARTS_MODEL_H

#include "base/limits.h"
#include "parts/arena.h"
#include "parts/labels.h"
#include "parts/ort.h"
#include "parts/preprocess.h"
#include "parts/tensor.h"

/* A free dimension beside the rows. */
struct lm_free_dim {
    char name[LM_TENSOR_NAME_BYTES_MAX]; /* the graph's, or INPUT[INDEX] where it has none */
    uint32_t max;                        /* the largest size that is served */
    bool by_default;                     /* nobody set the maximum */
};

struct lm_model {
    char name[LM_NAME_BYTES_MAX];
    uint32_t index;
    struct lm_tensor inputs[LM_TENSORS_MAX];
    struct lm_tensor outputs[LM_TENSORS_MAX];
    const char *input_names[LM_TENSORS_MAX];
    const char *output_names[LM_TENSORS_MAX];
    uint32_t input_count;
    uint32_t output_count;
    bool rows_free;                           /* some input has a free first dimension */
    char rows_name[LM_TENSOR_NAME_BYTES_MAX]; /* the graph's; may be empty */
    struct lm_free_dim free_dims[LM_FREE_DIMS_MAX];
    uint32_t free_count;
    bool has_rgb8;
    bool outputs_known; /* every output's shape follows from the sizes of a request */
    uint32_t max_rows;
    uint32_t batch_size;     /* rows of different requests in one Run; 1: none */
    uint64_t batch_delay_ns; /* how long a worker waits for more of them */
    uint32_t channel_order;
    struct lm_rgb8_plan rgb8;
    struct lm_labels labels; /* of its classes; may be empty */
    size_t max_output_bytes;
    uint32_t value_base; /* where this model's values start in a slot's table of values */
    struct lm_ort_source source;
    OrtSession *sessions[LUMEN_WORKERS_MAX];
    uint32_t session_count;
};

/* Where one request's tensors lie in its slot. */
struct lm_layout {
    void *inputs[LM_TENSORS_MAX];
    void *outputs[LM_TENSORS_MAX]; /* NULL where the shape is not known before Run */
    uint8_t *raw;                  /* a body that is converted, as received; NULL otherwise */
};

/* Tensors wrapped over one slot's memory for one model; rebuilt only when sizes or memory change.
 */
struct lm_binding {
    void *base;
    struct lm_sizes sizes; /* rows 0: nothing wrapped */
};

int lm_model_open(struct lm_model *model, const struct lm_ort *ort,
                  const lumen_model_config *config, uint32_t index, uint32_t session_count);
void lm_model_close(struct lm_model *model, const struct lm_ort *ort);
/* Corrects what the graph says of its outputs by what they are in two requests of other sizes. */
void lm_model_try_sizes(struct lm_model *model, const struct lm_ort *ort);

/* model_sizes.c. Gives every free dimension its largest size, and the rows: those of the
 * configuration, and defaults for the others. Returns 0, or LUMEN_E_* for a name of none. */
int lm_model_limit_sizes(struct lm_model *model, const lumen_model_config *config);
/* The index of the free dimension of that name; free_count: there is none. */
uint32_t lm_model_find_free(const struct lm_model *model, const char *name);
/* So many rows of the largest shape. */
struct lm_sizes lm_model_largest(const struct lm_model *model, uint32_t rows);
/* Elements of all inputs in one row of these sizes; at least 1. */
uint64_t lm_model_row_elements(const struct lm_model *model, const struct lm_sizes *sizes);

/* The sizes of a row whose one input has so many bytes; false: they do not follow from that. */
bool lm_model_row_of_bytes(const struct lm_model *model, uint64_t bytes,
                           struct lm_sizes *sizes_out);
/* A request's payload in bytes, without credential and shape block; false when it overflows. */
bool lm_model_payload_bytes(const struct lm_model *model, uint8_t encoding,
                            const struct lm_sizes *sizes, size_t *bytes_out);
/* The slot a request of these sizes needs, whatever its encoding; false when it overflows. */
bool lm_model_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                         size_t *bytes_out);
/* The slot for a request whose body is `text_bytes` of JSON; false when it overflows. */
bool lm_model_text_slot_bytes(const struct lm_model *model, size_t text_bytes, size_t *bytes_out);
uint32_t lm_model_shape_block_bytes(const struct lm_model *model);

/* model_text.c: HTTP. The head and JSON of a reply whose outputs are binary: part of every slot. */
size_t lm_model_reply_text_bytes(const struct lm_model *model);
/* Bytes of the outputs as JSON numbers, beyond that, in any of so many requests. */
size_t lm_model_reply_values_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                                   uint32_t count);
/* What one class of a classification takes, in JSON and as bytes. */
size_t lm_model_class_text_bytes(const struct lm_model *model);

/* Allocates a request's tensors in an empty slot that is large enough. */
void lm_model_layout(const struct lm_model *model, struct lm_slot *slot, uint8_t encoding,
                     const struct lm_sizes *sizes, struct lm_layout *layout_out);

/* `values` has room for input_count + output_count. Returns 0 or LUMEN_E_ORT. */
int lm_model_bind(const struct lm_model *model, const struct lm_ort *ort,
                  const struct lm_layout *layout, const struct lm_sizes *sizes,
                  struct lm_binding *binding, OrtValue **values);
void lm_model_unbind(const struct lm_model *model, const struct lm_ort *ort,
                     struct lm_binding *binding, OrtValue **values);
/* Whether ONNX Runtime writes this output to memory of ours, or allocates it. */
bool lm_output_is_wrapped(const struct lm_tensor *output, uint32_t rows);
/* Copies an output that ONNX Runtime allocated to its known place, and releases it. */
int lm_model_take_output(const struct lm_ort *ort, const struct lm_tensor *output, OrtValue **value,
                         void *place, size_t bytes);
/* Whether replies say the shapes of the outputs: a client cannot know them from the rows alone. */
static inline bool lm_model_tells_shapes(const struct lm_model *model) {
    return !model->outputs_known || model->free_count > 0;
}
/* Runs session `worker` on bound values. Outputs of unknown shape come back allocated in `values`.
 */
int lm_model_run(const struct lm_model *model, const struct lm_ort *ort, uint32_t worker,
                 OrtValue **values);

#endif
