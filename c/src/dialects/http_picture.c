/* http_picture.c: see http_picture.h. */
#include "dialects/http_picture.h"

#include <string.h>

#include "parts/http_form.h"

static bool begins_json(const char *text, size_t bytes) {
    for (; bytes > 0 && strchr(" \t\r\n", *text) && *text; bytes--) text++;
    return bytes > 0 && (*text == '{' || *text == '[');
}

void lm_http_find_picture(struct lm_request *request) {
    struct lm_http_exchange *http = &request->http;
    bool takes = request->model->takes_images;
    if (request->encoding != LM_ENCODING_JSON || http->json_bytes >= 0) return;
    http->is_form = lm_http_form_is(http->text, http->text_bytes);
    http->is_picture = http->is_form || lm_http_file_is(http->text, http->text_bytes) ||
                       (takes && !begins_json(http->text, http->text_bytes));
    if (!http->is_picture) return;
    if (takes) request->encoding = LM_ENCODING_IMAGE;
    size_t head_bytes = http->is_form ? lm_http_form_head(http->text, http->text_bytes) : 0;
    request->layout.raw = (uint8_t *)http->text + head_bytes;
    request->layout.raw_bytes = http->text_bytes - head_bytes;
}
