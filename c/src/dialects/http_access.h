/* http_access.h: who may ask over HTTP: a foreign Host or Origin may not, nor a client without a
 * key where there are keys. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP_ACCESS_H
#define LM_DIALECTS_HTTP_ACCESS_H

#include "flow/state.h"
#include "parts/http_parser.h"

/* Whether a name or a word of a header is this one, in whatever case. */
bool lm_http_equals(const char *at, size_t bytes, const char *word);
/* Whether the client may ask this host for this route; its key, if any, is in the call. false:
 * answered. */
bool lm_http_authorise(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_head *head, struct lm_slice host);

#endif
