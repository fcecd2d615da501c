/* infer.h: one request: from bytes in a slot to a composed reply. Workers, and I/O threads that run
 * models themselves. Allocates nothing of ours; ONNX Runtime allocates inside Run.
 */
#ifndef LM_WORK_INFER_H
#define LM_WORK_INFER_H

#include "models/binding.h"
#include "work/state.h"

/* Runs one request in its own slot and composes the reply, whatever comes of it. */
void lm_infer(struct lm_worker *worker, struct lm_request *request);
/* The memory that outputs without a place may take; bytes. */
struct lm_infer_room {
    size_t slot;    /* of the request's slot; what is larger has memory of its own (spill.h) */
    size_t allowed; /* by the model's setting, in all */
};
/* Appends an output's shape, which follows from the sizes, to a block of shapes. */
void lm_infer_put_shape(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                        uint32_t **block);
/* Whether an output that only the Run knew has so many rows. Returns 0 or LUMEN_E_ORT. */
int lm_infer_check_rows(struct lm_shared *shared, const struct lm_tensor *tensor,
                        const OrtValue *value, uint32_t rows);
/* Copies the request's rows of such an output, which begin at `first` of a batch, to its slot or
 * region, and appends their shape to a block. Returns 0 or LUMEN_E_ORT. */
int lm_infer_take_rows(struct lm_shared *shared, struct lm_request *request, uint32_t output,
                       OrtValue *value, uint32_t first, const void **data_out, size_t *bytes_out,
                       uint32_t **block, struct lm_infer_room *room);
struct lm_infer_room lm_infer_loose_room(const struct lm_request *request);
/* Copies `count` strings of an output, from `first` on, and takes them off the room. Returns 0 or
 * LUMEN_E_*. */
int lm_infer_take_strings(struct lm_shared *shared, struct lm_request *request, uint32_t output,
                          const OrtValue *value, size_t first, size_t count, const void **data_out,
                          size_t *bytes_out, struct lm_infer_room *room);
/* The status of a request that failed with this code. */
enum lm_status lm_infer_status(int code);
/* After a Run with strings: counts what they took, and gives back what is much. */
void lm_infer_end_strings(struct lm_worker *worker, const struct lm_model *model,
                          struct lm_binding *binding, OrtValue **values);
/* Releases outputs that ONNX Runtime allocated and nobody took. */
void lm_infer_drop_outputs(struct lm_shared *shared, const struct lm_model *model, uint32_t rows,
                           OrtValue **outputs);
/* Composes the answer of a request whose outputs lie in their places, or (`code` LUMEN_E_*) whose
 * `why` says what failed. */
void lm_infer_answer(struct lm_worker *worker, struct lm_request *request, int code);

#endif
