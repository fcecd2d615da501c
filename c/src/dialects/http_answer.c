/* http_answer.c: see http_answer.h. */
#include "dialects/http_answer.h"

#include <stdio.h>

#include "base/error.h"
#include "dialects/http_code.h"
#include "flow/access_log.h"
#include "flow/reply.h"
#include "formats/http_route.h"
#include "formats/text_slots.h"
#include "wire/http_date.h"
#include "work/load_figures.h"

void lm_http_answer(struct lm_io *io, struct lm_connection *connection,
                    const struct lm_http_answer *answer) {
    const struct lm_http_call *call = &connection->in.call;
    char head[LM_REPLY_HEAD_BYTES];
    /* Refusals say it too: a full server has no other answers. A client without a right to ask
     * learns nothing. */
    const bool is_told =
        lm_http_is_inference(call->route) && answer->code != 401 && answer->code != 403;
    const char *load = is_told ? lm_load_line(io->shared, call->load, io->now_ns) : "";
    int bytes =
        snprintf(head, sizeof head, "HTTP/1.1 %u %s\r\n%s%s%s%s%s%s%sContent-Length: %zu\r\n\r\n",
                 answer->code, lm_http_reason(answer->code), lm_http_date_line(),
                 answer->body_bytes ? "Content-Type: " : "",
                 !answer->body_bytes ? ""
                 : answer->type      ? answer->type
                                     : "application/json",
                 answer->body_bytes ? "\r\n" : "", answer->headers ? answer->headers : "", load,
                 call->keep_alive ? io->shared->keep_alive_lines : "Connection: close\r\n",
                 answer->body_bytes);
    LM_ASSERT(bytes > 0 && bytes < LM_REPLY_HEAD_BYTES);
    struct lm_access_entry entry = {.what = lm_http_route_name(call->route),
                                    .why = answer->why,
                                    .bytes = call->content_bytes,
                                    .model = call->model,
                                    .code = answer->code};
    lm_access_log(io, connection, &entry);
    lm_reply_bytes(io, connection, head, (size_t)bytes, answer->body,
                   call->head_only ? 0 : answer->body_bytes, answer->body_is_shared);
}

void lm_http_answer_error(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                          const char *headers, const char *why) {
    char body[LM_TEXT_BYTES_MAX + LM_HTTP_ERROR_BYTES];
    size_t used = lm_http_error_body(connection->in.call.route, code, why, body, sizeof body);
    lm_http_answer(
        io, connection,
        &(struct lm_http_answer){
            .code = code, .headers = headers, .body = body, .body_bytes = used, .why = why});
}
