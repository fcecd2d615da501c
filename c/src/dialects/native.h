/* native.h: the native protocol's side of a request's life (docs/PROTOCOL.md).
 *
 * native.c decides over a request whose header is read, before a byte of its body is. A refused
 * request is answered at once and costs no slot: its payload is read and dropped, and the
 * connection goes on. Only where the end of the frame is in doubt, or the payload is larger than
 * anything the server takes, does the connection end. I/O thread only, but for composing replies:
 * the thread that ran the request.
 */
#ifndef LM_DIALECTS_NATIVE_H
#define LM_DIALECTS_NATIVE_H

#include "flow/state.h"

extern const struct lm_dialect lm_native;

/* native_reply.c */
void lm_native_compose_outputs(struct lm_request *request, const void *const *data,
                               const size_t *bytes, size_t shape_block_bytes);
void lm_native_compose_error(struct lm_request *request, enum lm_status status, const char *text);
/* An answer of the I/O thread: with OK a body of payload_bytes that outlives the connection,
 * otherwise a sentence. */
void lm_native_answer(struct lm_io *io, struct lm_connection *connection,
                      const struct lm_native_reply *reply, const char *body);

#endif
