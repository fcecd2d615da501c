/* native_reply.c: replies of the native protocol: composed by the thread that ran the request, over
 * the outputs where they are, or answered by the I/O thread itself.
 */
#include <string.h>

#include "base/error.h"
#include "dialects/native.h"
#include "flow/reply.h"

static uint32_t whole_us(uint64_t from_ns, uint64_t to_ns) {
    uint64_t us = to_ns > from_ns ? (to_ns - from_ns) / 1000 : 0;
    return us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

/* Times are stamped one after another; a stage that was never reached has the stamp before it. */
static void write_head(struct lm_request *request, enum lm_status status, uint16_t flags,
                       size_t payload_bytes) {
    struct lm_native_reply reply = {
        .id = request->id,
        .payload_bytes = (uint32_t)payload_bytes,
        .rows = status == LM_STATUS_OK ? request->sizes.rows : 0,
        .receive_us = whole_us(request->started_ns, request->received_ns),
        .queue_us = whole_us(request->received_ns, request->popped_ns),
        .preprocess_us = whole_us(request->popped_ns, request->preprocessed_ns),
        .infer_us = whole_us(request->preprocessed_ns, request->inferred_ns),
        .status = (uint16_t)status,
        .flags = flags,
        .width = status == LM_STATUS_OK ? request->width : 0,
        .expert = (uint16_t)(status == LM_STATUS_OK && request->expert ? request->expert->number + 1
                                                                       : 0)};
    request->status = (uint16_t)status;
    lm_native_write_reply(request->head, &reply);
    request->reply[0] = (struct iovec){request->head, sizeof request->head};
}

void lm_native_compose_outputs(struct lm_request *request, const void *const *data,
                               const size_t *bytes, size_t shape_block_bytes) {
    uint32_t parts = 1;
    size_t payload = shape_block_bytes;
    if (shape_block_bytes)
        request->reply[parts++] = (struct iovec){request->prefix, shape_block_bytes};
    for (uint32_t i = 0; i < request->model->output_count; i++) {
        payload += bytes[i];
        if (bytes[i])
            request->reply[parts++] = (struct iovec){(void *)(uintptr_t)data[i], bytes[i]};
    }
    if (payload > UINT32_MAX) {
        lm_native_compose_error(request, LM_STATUS_TOO_LARGE,
                                "the outputs have more bytes than a reply can say: at most 4 GiB");
        return;
    }
    write_head(request, LM_STATUS_OK, shape_block_bytes ? LM_FLAG_SHAPES : 0, payload);
    lm_request_set_message(request, parts);
}

void lm_native_compose_error(struct lm_request *request, enum lm_status status, const char *text) {
    /* The slot's tensors are done with: the sentence takes their place. */
    lm_slot_reset(request->slot);
    size_t bytes = strnlen(text, LM_TEXT_BYTES_MAX);
    char *copy = lm_slot_alloc(request->slot, LM_TEXT_BYTES_MAX);
    LM_ASSERT(copy);
    memcpy(copy, text, bytes);
    request->reply[1] = (struct iovec){copy, bytes};
    write_head(request, status, 0, bytes);
    lm_request_set_message(request, 2);
}

void lm_native_answer(struct lm_io *io, struct lm_connection *connection,
                      const struct lm_native_reply *reply, const char *body) {
    /* A sentence lives on the caller's stack; the description, of known length, lives as long as
     * the server. */
    bool body_is_shared = reply->status == LM_STATUS_OK;
    struct lm_native_reply whole = *reply;
    uint8_t head[LM_NATIVE_REPLY_BYTES];
    if (!body_is_shared) whole.payload_bytes = (uint32_t)strnlen(body, LM_TEXT_BYTES_MAX);
    lm_native_write_reply(head, &whole);
    lm_reply_bytes(io, connection, head, sizeof head, body, whole.payload_bytes, body_is_shared);
}
