/* upstream_context.h: what of a request's head goes on to an upstream as it came: the trace that
 * the request is part of (W3C's Trace Context), and its X-Request-Id. It is kept beside the
 * connection from the head to the last byte of the body, where it is said at all. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_CONTEXT_H
#define LM_DIALECTS_UPSTREAM_CONTEXT_H

#include "dialects/upstream_state.h"
#include "wire/http_parser.h"

/* The head of a request is read: keeps what it says. What is malformed or too long is not kept, as
 * the standard has it. */
void lm_upstream_context_keep(struct lm_io *io, const struct lm_connection *client,
                              const struct lm_http_head *head);
/* Writes the fields, each with its line end. Returns their bytes. */
size_t lm_upstream_context_write(const struct lm_io *io, const struct lm_connection *client,
                                 char *out, size_t room);

#endif
