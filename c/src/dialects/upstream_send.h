/* upstream_send.h: the frames of requests on their way to an upstream over HTTP/2: those of all
 * streams that have something to say go out in one batch. Heads are written, bodies are sent from
 * where they lie. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_SEND_H
#define LM_DIALECTS_UPSTREAM_SEND_H

#include "dialects/upstream_http2_state.h"

/* Sends what may be sent now. */
void lm_trunk_flush(struct lm_io *io, struct lm_connection *connection,
                    struct lm_upstream_trunk *trunk);
/* The ring has sent some of a batch. */
void lm_trunk_sent(struct lm_io *io, struct lm_connection *connection,
                   struct lm_upstream_trunk *trunk, const struct lm_completion *completion);

#endif
