/* http_room.c: see http_room.h. */
#include "dialects/http_room.h"

#include "base/status.h"
#include "formats/text_slots.h"
#include "models/layout.h"
#include "models/sizes.h"
#include "wire/inflate.h"

enum { CODED_CHUNKS_SHARE = 8 };

size_t lm_http_text_room(const struct lm_io *io, const struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    if (!call->chunked) return (size_t)call->content_bytes;
    /* Of a compressed one the slot has to hold what it becomes, too. */
    size_t most = (size_t)io->shared->config.max_request_bytes;
    return call->coding == LM_CODING_NONE ? most : most / CODED_CHUNKS_SHARE;
}

size_t lm_http_inflated_room(const struct lm_io *io, const struct lm_connection *connection,
                             const struct lm_model *model) {
    const struct lm_sizes row = lm_model_largest(model, 1);
    size_t room = (size_t)io->shared->config.max_request_bytes, bytes = 0, needed = 0;
    if (lm_model_payload_bytes(model, LM_ENCODING_TENSORS, &row, &bytes)) {
        bytes = bytes * LM_INFLATE_ROWS + LM_INFLATE_JSON_BYTES +
                lm_http_text_room(io, connection) * LM_INFLATE_TIMES_MAX;
        if (bytes < room) room = bytes;
    }
    const bool is_twice = lm_coding_of_message(connection->in.call.coding) != LM_CODING_NONE;
    while (room > LM_INFLATE_JSON_BYTES &&
           (!lm_model_rows_slot_bytes(model, room, &needed) ||
            !lm_arena_fits(&io->arena,
                           needed + (is_twice ? room : 0) + 2 * lm_http_text_room(io, connection))))
        room /= 2;
    return room;
}

size_t lm_http_reply_room(const struct lm_model *model, const struct lm_oip_request *asked) {
    bool values = false;
    size_t bytes = 0;
    for (uint32_t w = 0; w < asked->requested_count; w++) {
        const struct lm_tensor *output = &model->outputs[asked->requested[w].output];
        size_t ranked = 0;
        if (asked->requested[w].classes && output->is_whole &&
            lm_tensor_bytes(output, &asked->sizes, &ranked))
            bytes += ranked / output->element_bytes * sizeof(uint32_t);
        values = values || !asked->requested[w].binary;
        bytes += asked->requested[w].classes * (size_t)asked->sizes.rows *
                 lm_model_class_text_bytes(model);
    }
    for (uint32_t b = 0; lm_model_echoes(model) && b < asked->blob_count; b++)
        bytes += asked->blob_bytes[b];
    return values ? bytes + lm_model_reply_values_bytes(model, &asked->sizes, 1) : bytes;
}
