/* upstream.h: requests for models that are served elsewhere. A whole request leaves its slot for an
 * upstream, over a connection that this I/O thread keeps, and the answer comes back through it: no
 * worker, no other thread, no copy but of what a client does not take at once. I/O thread only, but
 * for open and close.
 */
#ifndef LM_DIALECTS_UPSTREAM_H
#define LM_DIALECTS_UPSTREAM_H

#include "dialects/upstream_ask.h"
#include "dialects/upstream_state.h"

extern const struct lm_dialect lm_upstream, lm_upstream_http2;

/* Control thread. Returns 0 or LUMEN_E_*. */
int lm_upstreams_open(struct lm_io *io);
void lm_upstreams_shut(struct lm_io *io);
/* Connections that an I/O thread may open. */
uint32_t lm_upstreams_links_max(const struct lm_upstreams *upstreams);

/* The body of the request is whole, and its model an upstream's. `asked` is what was read of it;
 * NULL: its path names the model. */
void lm_upstream_submit(struct lm_io *io, struct lm_connection *client, struct lm_request *request,
                        const struct lm_openai_request *asked);
/* The client of such a request has left. */
void lm_upstream_client_left(struct lm_io *io, struct lm_connection *client);

/* When lm_upstream_due has work, in ns from now; UINT64_MAX: never. It ends requests that take too
 * long, and opens connections that are to be kept. */
uint64_t lm_upstream_due_ns(const struct lm_io *io);
void lm_upstream_due(struct lm_io *io);

#endif
