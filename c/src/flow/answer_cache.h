/* answer_cache.h: requests that are answered without a worker, since the same was asked before.
 *
 * Where a model's response_cache is on, a whole request goes by here on its way to the workers
 * (submit.h). Its digest (parts/keyed_hash.h) is of its bytes, its encoding, its sizes and its
 * model's generation. What is kept are the outputs, in no dialect: a reply is composed around them
 * as a worker does, in the form that this request wants. The outputs are kept when the slot comes
 * back, after the reply.
 *
 * Each I/O thread has a cache of its own, and alone touches it. Tensors in memory that clients
 * share are not cached: they might change meanwhile.
 */
#ifndef LM_FLOW_ANSWER_CACHE_H
#define LM_FLOW_ANSWER_CACHE_H

#include "flow/carrier.h"
#include "flow/state.h"
#include "parts/response_cache.h"

struct lm_answer_cache {
    struct lm_hash_key key;
    struct lm_response_cache entries;
    struct lm_spsc waiting; /* requests to look up; both ends are this thread */
};

/* What an entry begins with. Then come the bytes of each output, the shapes, what the text asked,
 * and the outputs. */
struct lm_cached {
    struct lm_sizes sizes;
    uint32_t block_bytes;
    uint32_t expert;      /* 1 + which of the model's experts answered; 0: the model */
    uint32_t carrier;     /* of a compressed body: what was in it */
    uint32_t asked_bytes; /* 0: the request's header says what is asked */
};

/* Of what a text asked, before its lists. */
enum { LM_ASKED_FIXED = offsetof(struct lm_oip_request, blob_inputs) };

/* Returns 0 or LUMEN_E_*. `slots` is a power of two. */
int lm_answers_open(struct lm_io *io, uint32_t slots);
void lm_answers_close(struct lm_io *io);

/* Takes a request that may be answered from the cache; false: it is none such. */
bool lm_answers_take(struct lm_io *io, const struct lm_request *request);
/* Whether some wait to be looked up (answer_look.h). */
static inline bool lm_answers_wait(const struct lm_io *io) {
    return io->answers && lm_spsc_depth(&io->answers->waiting) > 0;
}
/* A slot is back from its worker: keeps its outputs, if that is wanted. */
void lm_answers_keep(struct lm_io *io, struct lm_request *request);

/* The thread that ran the request: says where its outputs lie. Those of a batch, which is about to
 * be used again, are copied to the slot. */
void lm_answers_say(struct lm_request *request, const void *const *data, const size_t *bytes,
                    size_t block_bytes, bool is_in_batch);

#endif
