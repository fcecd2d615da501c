/* infer.h: one request: from bytes in a slot to a composed reply. Workers, and I/O threads that run
 * models themselves. Allocates nothing of ours; ONNX Runtime allocates inside Run.
 */
#ifndef LM_WORK_INFER_H
#define LM_WORK_INFER_H

#include "work/worker.h"

/* Runs one request in its own slot and composes the reply, whatever comes of it. */
void lm_infer(struct lm_worker *worker, struct lm_request *request);
/* Writes the shapes of the outputs, all known, to the reply's prefix. Returns the bytes. */
size_t lm_infer_write_shapes(struct lm_request *request);
/* Releases outputs that ONNX Runtime allocated and nobody took. */
void lm_infer_drop_outputs(struct lm_shared *shared, const struct lm_model *model, uint32_t rows,
                           OrtValue **outputs);

#endif
