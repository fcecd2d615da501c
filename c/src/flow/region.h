/* region.h: memory that a client of the unix socket shares with the server: a sealed memfd, mapped
 * once, in which its requests name where their tensors lie.
 *
 * A connection has one region at a time. A region outlives it, and its successor, while a request
 * uses it: a worker may still read or write there. I/O thread only; workers read `base` and `bytes`
 * of the region of a request that they hold.
 */
#ifndef LM_FLOW_REGION_H
#define LM_FLOW_REGION_H

#include "flow/state.h"

/* Maps what a client has sent as the connection's region, in place of the one it had. The caller
 * closes the descriptor. Returns LM_STATUS_OK, or why not, with a sentence. */
enum lm_status lm_region_take(struct lm_io *io, struct lm_connection *connection, int fd, char *why,
                              size_t why_bytes);
/* The connection has none any more. */
void lm_region_drop(struct lm_io *io, struct lm_connection *connection);
/* The request's tensors are in the connection's region. */
void lm_region_hold(struct lm_io *io, const struct lm_connection *connection,
                    struct lm_request *request);
void lm_region_release(struct lm_io *io, struct lm_request *request);
/* Unmaps a part of what nobody uses any more: a turn's share. */
void lm_region_unmap(struct lm_io *io);
void lm_region_close_all(struct lm_io *io);

#endif
