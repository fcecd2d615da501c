/* json_body.h: a body of the Open Inference Protocol's JSON, received into the slot as text,
 * becomes tensors behind it. Workers, and I/O threads that run models themselves. Allocates
 * nothing.
 */
#ifndef LM_WORK_JSON_BODY_H
#define LM_WORK_JSON_BODY_H

#include "flow/request.h"

/* Where the text goes in the request's slot: room for so many bytes, of which the first are here.
 */
void lm_json_body_receive(struct lm_request *request, size_t room, const char *text,
                          size_t text_bytes);
/* Sets rows, layout and, where the JSON names one, the deadline. Returns LM_STATUS_OK, or why the
 * request is refused, with a sentence. */
enum lm_status lm_json_body_read(struct lm_oip_parser *parser, struct lm_request *request,
                                 char *why, size_t why_bytes);

#endif
