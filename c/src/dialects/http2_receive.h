/* http2_receive.h: the frames of a connection of HTTP/2, as they come. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP2_RECEIVE_H
#define LM_DIALECTS_HTTP2_RECEIVE_H

#include "dialects/http2_state.h"

/* Bytes behind the preface, of one frame at most. Returns how many it took. */
size_t lm_http2_take_frame(struct lm_io *io, struct lm_connection *carrier, const uint8_t *bytes,
                           size_t count);

#endif
