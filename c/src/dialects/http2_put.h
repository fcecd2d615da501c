/* http2_put.h: a connection's own frames, which wait to be sent with its next batch. I/O thread
 * only.
 */
#ifndef LM_DIALECTS_HTTP2_PUT_H
#define LM_DIALECTS_HTTP2_PUT_H

#include "dialects/http2_state.h"

/* Whether a step may begin: a frame is taken, or a stream looked at. All that it says has room
 * then, and so has how the connection ends. */
bool lm_http2_has_room(const struct lm_http2_carrier *http2);
void lm_http2_put(struct lm_http2_carrier *http2, uint8_t type, uint8_t flags, uint32_t stream,
                  const uint8_t *payload, uint32_t bytes);
void lm_http2_put_number(struct lm_http2_carrier *http2, uint8_t type, uint32_t stream,
                         uint32_t number);
/* Ends a stream. Those that its client made the server end count as those that it ends itself. */
void lm_http2_put_reset(struct lm_http2_carrier *http2, uint32_t stream, enum lm_http2_error error);
/* Says why the connection ends, which it does once its streams are done; after an error at once. */
void lm_http2_put_goaway(struct lm_http2_carrier *http2, enum lm_http2_error error,
                         const char *why);

/* Asks its client to go elsewhere, as the standard has it (RFC 9113, 6.8): what it sends until it
 * has heard of it is served; when it has, it gets the GOAWAY above. */
void lm_http2_put_notice(struct lm_http2_carrier *http2, uint64_t now_ns, const char *why);
/* A PING's answer: of that, or of none. */
void lm_http2_take_pong(struct lm_http2_carrier *http2, const uint8_t payload[8]);

/* The client made an error: it is told which, and the connection ends. */
void lm_http2_fail(struct lm_http2_carrier *http2, enum lm_http2_error error, const char *why);

#endif
