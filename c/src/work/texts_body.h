/* texts_body.h: a body of texts (formats/texts_request.h), received into the slot as JSON, becomes
 * the strings of a model of texts. Workers. Allocates nothing.
 */
#ifndef LM_WORK_TEXTS_BODY_H
#define LM_WORK_TEXTS_BODY_H

#include "flow/request.h"

/* Sets the request's rows and layout. Returns LM_STATUS_OK, or why the request is refused, with a
 * sentence. */
enum lm_status lm_texts_body_read(struct lm_oip_parser *parser, struct lm_request *request,
                                  char *why, size_t why_bytes);

#endif
