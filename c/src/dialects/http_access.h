/* http_access.h: who may ask over HTTP: a foreign Host or Origin may not, nor a client without a
 * key where there are keys. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP_ACCESS_H
#define LM_DIALECTS_HTTP_ACCESS_H

#include "flow/state.h"
#include "wire/http_parser.h"

/* Whether the client may ask this host for this route; its key, if any, and what follows from it
 * are in the call. false: answered. */
bool lm_http_authorise(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_head *head, struct lm_slice host);

/* The number that its client's key has now: a reload may have come since the head. LM_NO_KEY, or
 * LM_KEY_GONE where the key has gone. */
uint32_t lm_http_key(const struct lm_io *io, const struct lm_connection *connection);

/* Whether a browser says that a page of another site, or of another port, made it send this. */
bool lm_http_is_from_page(const struct lm_http_head *head);
/* Whether the client is on this machine, with no proxy between. One system call. */
bool lm_http_is_local(const struct lm_connection *connection);
/* Whether it may change the server: with an admin's key, or from this machine where there are no
 * keys; never for a page of another site. NULL: it may; else why not. */
const char *lm_http_control_refusal(const struct lm_connection *connection);

#endif
