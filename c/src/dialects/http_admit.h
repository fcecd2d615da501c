/* http_admit.h: decides over an inference by HTTP before a byte of its body is read, and says where
 * the body goes. I/O thread only.
 *
 * Binary tensors are received straight into the tensors, as with the native protocol: of such a
 * request only the JSON before the blobs is parsed here, at most LM_HTTP_JSON_BYTES_MAX of it. A
 * body of JSON values, or a chunked one, is received into the slot as text, and parsed by the
 * worker that runs it.
 */
#ifndef LM_DIALECTS_HTTP_ADMIT_H
#define LM_DIALECTS_HTTP_ADMIT_H

#include "flow/state.h"

/* The head is whole and its request may ask the model. `is_in`: the gate has let it in already, but
 * for what is the model's own. */
void lm_http_admit_infer(struct lm_io *io, struct lm_connection *connection, bool is_in);
/* The JSON before the blobs is whole. */
void lm_http_admit_json(struct lm_io *io, struct lm_connection *connection, const char *text);
/* Tries again to find a slot for a request that waits for one. */
void lm_http_retry(struct lm_io *io, struct lm_connection *connection);
/* The body is wanted: a client that waits to be asked for it is. */
void lm_http_ask_for_more(struct lm_io *io, struct lm_connection *connection);

#endif
