/* http_routes.h: what the I/O thread answers over HTTP by itself, whatever the workers do: health,
 * metadata, statistics, the page. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP_ROUTES_H
#define LM_DIALECTS_HTTP_ROUTES_H

#include "flow/state.h"

/* Everything that is no inference: what the call asks for. */
void lm_http_answer_route(struct lm_io *io, struct lm_connection *connection);

/* NULL: the model of that index takes requests, or for LM_NO_MODEL the server does; or why not,
 * maybe in `text`. */
const char *lm_http_why_unready(const struct lm_io *io, uint32_t index,
                                char text[LM_TEXT_BYTES_MAX]);

#endif
