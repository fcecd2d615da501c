/* io_model.h: what one I/O thread has of a model: tensors wrapped around its slots, and what the
 * model's requests cost. Made and freed by the control thread, with the model; meanwhile the
 * estimates are the I/O thread's, and what belongs to a slot is its holder's.
 */
#ifndef LM_FLOW_IO_MODEL_H
#define LM_FLOW_IO_MODEL_H

#include "flow/state.h"
#include "models/binding.h"

/* The estimated worker time of one model, encoding and class of sizes; see estimate.h. */
struct lm_cost {
    uint64_t row_ns;        /* of one row, or of the class's largest size; lately; 0: not known */
    uint64_t next_probe_ns; /* from then on a request may test the estimate */
    uint32_t measured;      /* the first few Runs */
    bool probing;           /* one that does so is with the workers */
};

enum { LM_COST_CLASSES = 16 }; /* each of half the size of the one before */

struct lm_io_model {
    LM_CACHE_ALIGNED struct lm_cost costs[LM_ENCODING_COUNT][LM_COST_CLASSES];
    struct lm_binding *bindings; /* one per slot */
    OrtValue **values;           /* slot × tensors of the model */
    uint32_t slot_count;
    double shadow_difference; /* the largest, of its answers to copies; shadow.h */
    /* 1: its outputs have other shapes than the graph or the trial said: ONNX Runtime allocates
     * them. Written by any thread that runs the model. */
    lm_atomic_u32 outputs_lie;
};

/* Wraps each slot that was sized for the model, so that the first requests find it done. The I/O
 * thread's arena is open. Returns 0 or LUMEN_E_*. */
int lm_io_model_open(struct lm_io *io, struct lm_model *model);
/* No request of the model is left. A model without this I/O thread's side is allowed. */
void lm_io_model_close(struct lm_io *io, struct lm_model *model);

/* The slot's holder. */
static inline struct lm_binding *lm_io_model_binding(const struct lm_request *request) {
    return &request->model->sides[request->io->index]->bindings[request->slot->index];
}
static inline OrtValue **lm_io_model_values(const struct lm_request *request) {
    const struct lm_model *model = request->model;
    size_t tensors = (size_t)model->input_count + model->output_count;
    return model->sides[request->io->index]->values + request->slot->index * tensors;
}

/* Whether a Run has shown that the declared shapes of the model's outputs are wrong. */
static inline bool lm_io_model_outputs_lie(const struct lm_request *request) {
    /* relaxed: a Run that misses it fails once and is repeated */
    return lm_load_relaxed_u32(&request->model->sides[request->io->index]->outputs_lie) != 0;
}
static inline void lm_io_model_say_outputs_lie(const struct lm_model *model, uint32_t io) {
    if (model->sides[io])
        lm_store_relaxed_u32(&model->sides[io]->outputs_lie, 1); /* relaxed: as above */
}

#endif
