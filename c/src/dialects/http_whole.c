/* http_whole.c: see http_whole.h. */
#include "dialects/http_whole.h"

#include "dialects/http_refuse.h"
#include "dialects/http_texts.h"
#include "dialects/upstream.h"
#include "flow/slots.h"
#include "flow/submit.h"
#include "work/carrier.h"

/* Its request goes to who answers it, here or elsewhere. */
static void hand_over(struct lm_io *io, struct lm_connection *connection,
                      struct lm_request *request) {
    struct lm_openai_request asked = {0};
    lm_carrier_find_file(request);
    if (io->upstream) lm_exchange_of(io, request->slot->index)->wanted = LM_NO_INDEX;
    if (lm_http_body_names_model(connection->in.call.route) &&
        !lm_http_texts_received(io, connection, request, &asked))
        return;
    if (lm_model_is_elsewhere(request->model)) {
        lm_upstream_submit(io, connection, request, &asked);
    } else if (lm_http_texts_reserve(io, connection, request)) {
        lm_submit(io, connection, request);
    }
}

void lm_http_chunks_received(struct lm_io *io, struct lm_connection *connection,
                             struct lm_request *request) {
    const struct lm_body *body = &request->body;
    request->payload_bytes = (uint32_t)body->bytes;
    const bool is_coded = lm_carrier_of(request)->is_coded;
    if ((!is_coded && body->json_bytes > (int64_t)body->bytes) || body->json_bytes == 0) {
        /* The body is whole, so the connection can go on. */
        connection->in.receiving = LM_NO_SLOT;
        connection->in.call.chunked = false;
        lm_slots_release(io, request);
        lm_http_refuse_status(
            io, connection, LM_STATUS_BAD_REQUEST,
            "Inference-Header-Content-Length: expected at least 1 and at most the chunks' "
            "bytes; a raw binary request needs a Content-Length");
        return;
    }
    hand_over(io, connection, request);
}

void lm_http_body_received(struct lm_io *io, struct lm_connection *connection) {
    hand_over(io, connection, &io->requests[connection->in.receiving]);
}
