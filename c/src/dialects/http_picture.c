/* http_picture.c: see http_picture.h. */
#include "dialects/http_picture.h"

#include "work/json_body.h"

void lm_http_find_picture(struct lm_request *request) {
    if (request->http.coding != LM_CODING_NONE) return; /* its worker looks, behind the coding */
    if (lm_picture_body_find(request) && request->model->takes_images)
        request->encoding = LM_ENCODING_IMAGE;
}
