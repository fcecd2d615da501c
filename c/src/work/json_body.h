/* json_body.h: a body of JSON, received into the slot as text, becomes tensors behind it. Workers,
 * and I/O threads that run models themselves. Allocates nothing.
 */
#ifndef LM_WORK_JSON_BODY_H
#define LM_WORK_JSON_BODY_H

#include "flow/request.h"
#include "wire/inflate.h"

/* Where the text goes in the request's slot: room for so many bytes, of which the first are here.
 */
void lm_json_body_receive(struct lm_request *request, size_t room, const char *text,
                          size_t text_bytes);
/* Puts what a compressed text holds in its place. Returns LM_STATUS_OK, or why the request is
 * refused, with a sentence. */
enum lm_status lm_json_body_inflate(struct lm_inflater *inflater, struct lm_request *request,
                                    char *why, size_t why_bytes);
/* Of a request of the Open Inference Protocol. Sets rows, layout and, where the JSON names one, the
 * deadline. Returns LM_STATUS_OK, or why the request is refused, with a sentence. */
enum lm_status lm_json_body_read(struct lm_oip_parser *parser, struct lm_request *request,
                                 char *why, size_t why_bytes);
/* The same of rows with names. */
enum lm_status lm_rows_body_read(struct lm_oip_parser *parser, struct lm_request *request,
                                 char *why, size_t why_bytes);
/* As the others, of a picture's file that is the whole body: it stays where it is, to be decoded;
 * the reply is to have all outputs. */
enum lm_status lm_picture_body_place(struct lm_request *request, char *why, size_t why_bytes);

#endif
