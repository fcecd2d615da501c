/* http2.h: the dialect of HTTP/2's connections: their frames, and the streams that they carry
 * (http2_state.h). I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP2_H
#define LM_DIALECTS_HTTP2_H

#include "flow/state.h"

extern const struct lm_dialect lm_http2;

/* The control thread, before and after the I/O thread. Returns 0 or LUMEN_E_*. */
int lm_http2_open(struct lm_io *io, uint32_t connections);
void lm_http2_close(struct lm_io *io);

#endif
