/* http_reply.h: replies to HTTP inference, composed by the thread that ran the request: the JSON
 * and the head before it in the request's slot, binary outputs sent from where they are. Allocates
 * nothing.
 */
#ifndef LM_DIALECTS_HTTP_REPLY_H
#define LM_DIALECTS_HTTP_REPLY_H

#include "flow/state.h"

void lm_http_compose_outputs(struct lm_request *request, const void *const *data,
                             const size_t *bytes, size_t shape_block_bytes);
void lm_http_compose_error(struct lm_request *request, enum lm_status status, const char *text);

#endif
