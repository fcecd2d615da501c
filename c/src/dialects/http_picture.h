/* http_picture.h: a body without JSON: a picture's file, as it is or in a form. Its first bytes
 * tell, whatever the Content-Type: no JSON begins as these do. Of a model that takes pictures all
 * that begins otherwise than JSON is one, so that the decoder says what is wrong with it. I/O
 * thread only. */
#ifndef LM_DIALECTS_HTTP_PICTURE_H
#define LM_DIALECTS_HTTP_PICTURE_H

#include "flow/request.h"

/* The body of a request for JSON is whole: where it is a picture, or a form, the request becomes
 * one of pictures. */
void lm_http_find_picture(struct lm_request *request);

#endif
