/* http_head.h: decides what an HTTP request asks for, by its head alone: which route, which model,
 * who may. I/O thread only. */
#ifndef LM_DIALECTS_HTTP_HEAD_H
#define LM_DIALECTS_HTTP_HEAD_H

#include "flow/state.h"
#include "wire/http_parser.h"

/* Answers the request, or begins to read its body. The head is not looked at again. */
void lm_http_take_head(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_head *head);

#endif
