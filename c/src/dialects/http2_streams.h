/* http2_streams.h: the streams of a connection of HTTP/2: opened by a header block, fed by DATA,
 * closed when their answer is sent. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP2_STREAMS_H
#define LM_DIALECTS_HTTP2_STREAMS_H

#include "dialects/http2_state.h"

/* The stream of that number; NULL: it is not open. */
struct lm_http2_stream *lm_http2_stream_find(struct lm_http2_carrier *http2, uint32_t id);

/* A block of fields is here: of a request, or of trailers. */
void lm_http2_stream_head(struct lm_io *io, struct lm_connection *carrier, uint32_t id,
                          const uint8_t *block, size_t bytes, bool ends);

/* Bytes of its body. It is refused where it waits and there is no room for them. */
void lm_http2_stream_body(struct lm_io *io, struct lm_connection *carrier,
                          struct lm_http2_stream *stream, const uint8_t *bytes, size_t count);
/* The client has sent its last byte. */
void lm_http2_stream_end(struct lm_io *io, struct lm_connection *carrier,
                         struct lm_http2_stream *stream);
/* Nobody waits for its answer any more. */
void lm_http2_stream_reset(struct lm_io *io, struct lm_http2_stream *stream);

/* Their connection has failed, and all of them end; or it was too slow, and those alone do whose
 * requests are not whole. */
void lm_http2_streams_drop(struct lm_io *io, struct lm_connection *carrier, bool halves_alone);
/* Looks at all of them: who is done, and who has left. */
void lm_http2_streams_look(struct lm_io *io, struct lm_connection *carrier);

#endif
