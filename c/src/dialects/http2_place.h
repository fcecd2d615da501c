/* http2_place.h: DATA that is received where it belongs: in the slot of its request. Its frame's
 * header came with other bytes; what is left of the frame, and of the tensor that it is a part of,
 * needs no copy then. The stream's `recv_armed` says meanwhile that its slot is written to. I/O
 * thread only.
 */
#ifndef LM_DIALECTS_HTTP2_PLACE_H
#define LM_DIALECTS_HTTP2_PLACE_H

#include "dialects/http2_state.h"

/* As dialect.h says. */
bool lm_http2_place(struct lm_io *io, struct lm_connection *carrier, struct iovec *place_out);
void lm_http2_placed(struct lm_io *io, struct lm_connection *carrier, size_t bytes);

#endif
