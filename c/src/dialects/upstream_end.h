/* upstream_end.h: how a request that an upstream has comes to its end: its answer is passed whole,
 * it fails (then it goes to another address, or its client is told), or its client leaves. I/O
 * thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_END_H
#define LM_DIALECTS_UPSTREAM_END_H

#include "dialects/upstream_state.h"
#include "flow/refusal.h"

/* A request begins: it counts as an upstream's from here to one of the ends below. false: there
 * are as many as there may be. */
bool lm_upstream_begin(struct lm_io *io, struct lm_connection *client, struct lm_request *request,
                       struct lm_refusal *refusal);
/* It ends here, before its client has any byte of an answer, and may begin elsewhere. */
void lm_upstream_give_up(struct lm_io *io, uint32_t slot);
/* Why a request has no answer, and its client no byte of one. */
struct lm_upstream_failure {
    uint32_t code;     /* HTTP's, for the client */
    bool is_died;      /* before any byte of an answer */
    bool is_elsewhere; /* another address may do better */
    char why[LM_TEXT_BYTES_MAX];
};

/* Sends it to an address. false: that cannot be. */
bool lm_upstream_start(struct lm_io *io, uint32_t slot, struct lm_upstream_failure *failure);
/* It ends here, and its client is told why. */
void lm_upstream_tell(struct lm_io *io, uint32_t slot, const struct lm_upstream_failure *failure);
/* Its budgets are charged what its answer says, or what can be told from what there is of it. */
void lm_upstream_settle(struct lm_io *io, uint32_t slot);
/* Sends what is in the exchange's `event` to its client, in the framing of its answer, which has
 * begun. */
enum lm_outcome lm_upstream_say(struct lm_io *io, uint32_t slot, size_t bytes, bool is_last);
/* The last piece of its answer is with the kernel (SENT), or the ring sends it. */
void lm_upstream_finish(struct lm_io *io, uint32_t slot, enum lm_outcome outcome);
/* Its link is over: the request is sent again, or ends as far as its client has seen it. false: its
 * client has seen nothing, and nobody is left to ask. */
bool lm_upstream_lose(struct lm_io *io, struct lm_link *link, struct lm_upstream_failure *failure);
/* An answer of this status may be passed over: the request goes to another address, once its link
 * is over. */
bool lm_upstream_goes_on(struct lm_io *io, const struct lm_link *link,
                         const struct lm_http_response *response);

#endif
