/* upstream_pool.h: an I/O thread's connections to upstreams: which address a request goes to, links
 * that are opened, kept and closed, and addresses that are left alone for a while because their
 * requests failed. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_POOL_H
#define LM_DIALECTS_UPSTREAM_POOL_H

#include "dialects/upstream_state.h"

enum { LM_NO_ADDRESS_LEFT = UINT32_MAX };

/* The address for a request that was not at those of `tried`: of two that are drawn the one with
 * fewer requests. LM_NO_ADDRESS_LEFT: it was at all of them. */
uint32_t lm_upstream_choose(struct lm_io *io, uint32_t upstream, uint32_t tried);
/* A link to it that is idle, or (state DIALING) one that is being opened; NULL: there are as many
 * as there may be, or no descriptor is left (errno). */
struct lm_link *lm_upstream_link(struct lm_io *io, uint32_t upstream, uint32_t address,
                                 bool is_fresh);
/* Its answer is whole: it may have the next request, or is over. */
void lm_upstream_finished(struct lm_io *io, struct lm_link *link);
/* It has no request, and may have the next one. */
void lm_upstream_rest(struct lm_io *io, struct lm_link *link);
/* Nothing comes of it any more; it is free once the kernel is done with it. */
void lm_upstream_drop(struct lm_io *io, struct lm_link *link);
/* Its entry in the table of connections is about to be free. */
void lm_upstream_forget(struct lm_io *io, struct lm_link *link);
/* Nobody comes back with them any more. */
void lm_upstream_drop_tickets(struct lm_io *io);
/* Opens those that are to be kept. Whether all are there. */
bool lm_upstream_keep(struct lm_io *io);

/* A request ended well, or badly, at an address. */
void lm_upstream_succeeded(struct lm_io *io, uint32_t upstream, uint32_t address);
void lm_upstream_failed(struct lm_io *io, uint32_t upstream, uint32_t address);
/* Whether one more request may be sent again: so many of all. */
bool lm_upstream_may_retry(struct lm_io *io, uint32_t upstream);

#endif
