/* gate.h: admission control: whether a request may enter, by its key's models, by rates, by how
 * many are in flight, and by whether its deadline can still be met. One gate for every dialect. I/O
 * thread only, but for the token buckets, which all I/O threads share.
 */
#ifndef LM_FLOW_GATE_H
#define LM_FLOW_GATE_H

#include "flow/carrier.h"
#include "flow/refusal.h"

#define LM_KEY_GONE (UINT32_MAX - 1) /* there was one: no key of a table has this number */

/* The number that a key has now which had `key` in the turn of `then_ns`: a reload since then may
 * have given that to another one. `owner` is lm_key_owner of its name. LM_NO_KEY stays;
 * LM_KEY_GONE: the key is not there any more; where there are none now, LM_NO_KEY. */
uint32_t lm_gate_key(const struct lm_io *io, uint32_t key, uint64_t owner, uint64_t then_ns);
/* The same of the key of a request. */
uint32_t lm_gate_key_of(const struct lm_io *io, const struct lm_request *request);
/* Whether the key, as it is now, may use the model. */
bool lm_gate_allows(const struct lm_io *io, uint32_t key, const struct lm_model *model);
/* Before the body is known: the key's models, rates, how many wait and are in flight. `model` NULL:
 * what is not a model's own. */
bool lm_gate_enter(struct lm_io *io, const struct lm_model *model, uint32_t key,
                   struct lm_refusal *refusal);
/* The rest of it, once the model is known: its rate, the key's tokens, and how many wait for it. */
bool lm_gate_enter_model(struct lm_io *io, const struct lm_model *model, uint32_t key,
                         struct lm_refusal *refusal);
/* Takes what it may need at most of its key's and its model's budgets, once its body is whole. They
 * have it until lm_slots_settle. */
bool lm_gate_reserve(struct lm_io *io, struct lm_request *request, uint64_t tokens,
                     struct lm_refusal *refusal);
/* The tokens that a whole request of texts may be: a byte is one at most. Of compressed and of
 * shared bytes there may be more, which count once they are known. */
static inline uint64_t lm_gate_most_tokens(const struct lm_request *request) {
    return request->payload_bytes * (lm_carrier_of(request)->is_coded ? 4ull : 1ull);
}
/* An answered request of texts costs its key its tokens: how many is known only now. */
void lm_gate_charge(struct lm_io *io, const struct lm_request *request);
/* Whether the answer is expected before the deadline. */
bool lm_gate_in_time(struct lm_io *io, const struct lm_demand *demand, uint64_t deadline_ns,
                     struct lm_refusal *refusal);

#endif
