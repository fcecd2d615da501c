/* json_body.h: a body of the Open Inference Protocol's JSON, received into the slot as text,
 * becomes tensors behind it. Workers, and I/O threads that run models themselves. Allocates
 * nothing.
 */
#ifndef LM_WORK_JSON_BODY_H
#define LM_WORK_JSON_BODY_H

#include "flow/request.h"

/* Sets rows, layout and, where the JSON names one, the deadline. Returns LM_STATUS_OK, or why the
 * request is refused, with a sentence. */
enum lm_status lm_json_body_read(struct lm_oip_parser *parser, struct lm_request *request,
                                 char *why, size_t why_bytes);

#endif
