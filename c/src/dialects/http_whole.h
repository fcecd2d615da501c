/* http_whole.h: the body of an admitted request is whole: what it is for is known now, and it goes
 * to the workers or to an upstream. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP_WHOLE_H
#define LM_DIALECTS_HTTP_WHOLE_H

#include "flow/state.h"

/* Of a length that its head said. */
void lm_http_body_received(struct lm_io *io, struct lm_connection *connection);
/* In chunks. */
void lm_http_chunks_received(struct lm_io *io, struct lm_connection *connection,
                             struct lm_request *request);

#endif
