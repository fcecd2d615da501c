/* http2_send.h: what a connection of HTTP/2 sends: its own frames (http2_put.h), and its streams'
 * replies in turns, a frame each. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP2_SEND_H
#define LM_DIALECTS_HTTP2_SEND_H

#include "dialects/http2_state.h"

/* Sends what it can. */
void lm_http2_flush(struct lm_io *io, struct lm_connection *carrier);
/* The ring has sent some of it. */
void lm_http2_sent(struct lm_io *io, struct lm_connection *carrier,
                   const struct lm_completion *completion);

#endif
