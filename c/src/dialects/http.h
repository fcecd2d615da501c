/* http.h: the HTTP/1.1 side of a request's life: what lies between flow/ and the parsers of parts/.
 * A connection that speaks HTTP has one request at a time with the workers, so that replies keep
 * the order of their requests.
 */
#ifndef LM_DIALECTS_HTTP_H
#define LM_DIALECTS_HTTP_H

#include "flow/state.h"

extern const struct lm_dialect lm_http;

/* Control thread: what each I/O thread keeps for HTTP. */
int lm_http_open(struct lm_io *io);
void lm_http_close(struct lm_io *io);

#endif
