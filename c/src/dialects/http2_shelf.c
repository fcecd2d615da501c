/* http2_shelf.c: see http2_shelf.h. */
#include "dialects/http2_shelf.h"

#include <string.h>

#include "base/error.h"
#include "dialects/http2_put.h"

enum { TOUCHED_MAX = 16, PLACED_MAX = 1 << 30 };

int lm_http2_shelves_open(struct lm_http2_shelves *shelves) {
    const size_t bytes = (size_t)LM_STREAMS_MAX * LM_HTTP2_STREAM_WINDOW;
    for (uint16_t s = 0; s < LM_STREAMS_MAX; s++)
        shelves->free[s] = (uint16_t)(LM_STREAMS_MAX - 1 - s); /* the first is taken first */
    shelves->free_count = LM_STREAMS_MAX;
    shelves->room = LM_HTTP2_SHELVED_MAX;
    return lm_mapping_reserve(&shelves->memory, bytes);
}

void lm_http2_shelves_close(struct lm_http2_shelves *shelves) {
    lm_mapping_close(&shelves->memory);
}

static uint8_t *base_of(const struct lm_http2_carrier *http2,
                        const struct lm_http2_stream *stream) {
    return (uint8_t *)http2->side->shelves.memory.base +
           (size_t)(stream->shelf - 1) * LM_HTTP2_STREAM_WINDOW;
}

/* There is one for each stream. */
static void take_shelf(struct lm_http2_shelves *shelves, struct lm_http2_stream *stream) {
    stream->shelf = (uint16_t)(1 + shelves->free[--shelves->free_count]);
    stream->shelf_at = stream->shelved = 0;
}

static void give_shelf(struct lm_http2_shelves *shelves, struct lm_http2_stream *stream) {
    const uint16_t index = (uint16_t)(stream->shelf - 1);
    if (index >= TOUCHED_MAX)
        lm_mapping_forget(&shelves->memory, (size_t)index * LM_HTTP2_STREAM_WINDOW,
                          LM_HTTP2_STREAM_WINDOW);
    shelves->free[shelves->free_count++] = index;
    stream->shelf = 0;
}

bool lm_http2_shelve(struct lm_http2_carrier *http2, struct lm_http2_stream *stream,
                     const uint8_t *bytes, size_t count) {
    struct lm_http2_shelves *shelves = &http2->side->shelves;
    const uint32_t room = shelves->room - shelves->shelved;
    if (http2->shelved + count > room) return false;
    if (!stream->shelf) take_shelf(shelves, stream);
    LM_DEBUG_ASSERT(stream->shelved + count <= LM_HTTP2_STREAM_WINDOW);
    uint8_t *base = base_of(http2, stream);
    if (stream->shelf_at + stream->shelved + count > LM_HTTP2_STREAM_WINDOW) {
        memmove(base, base + stream->shelf_at, stream->shelved);
        stream->shelf_at = 0;
    }
    memcpy(base + stream->shelf_at + stream->shelved, bytes, count);
    stream->shelved += (uint32_t)count;
    http2->shelved += (uint32_t)count;
    shelves->shelved += (uint32_t)count;
    return true;
}

const uint8_t *lm_http2_shelved(const struct lm_http2_carrier *http2,
                                const struct lm_http2_stream *stream) {
    return base_of(http2, stream) + stream->shelf_at;
}

void lm_http2_unshelve(struct lm_http2_carrier *http2, struct lm_http2_stream *stream,
                       size_t count) {
    stream->shelf_at += (uint32_t)count;
    stream->shelved -= (uint32_t)count;
    http2->shelved -= (uint32_t)count;
    http2->side->shelves.shelved -= (uint32_t)count;
    if (stream->shelved == 0) give_shelf(&http2->side->shelves, stream);
}

void lm_http2_credit_connection(struct lm_http2_carrier *http2, size_t bytes) {
    http2->recv_window -= (int64_t)bytes;
    if (http2->recv_window >= LM_HTTP2_CONNECTION_WINDOW / 2) return;
    lm_http2_put_number(http2, LM_HTTP2_WINDOW_UPDATE, 0,
                        (uint32_t)(LM_HTTP2_CONNECTION_WINDOW - http2->recv_window));
    http2->recv_window = LM_HTTP2_CONNECTION_WINDOW;
}

void lm_http2_credit_stream(struct lm_http2_carrier *http2, struct lm_http2_stream *stream,
                            uint64_t left, uint64_t placed, uint32_t aside) {
    const int64_t there = placed < PLACED_MAX ? (int64_t)placed : PLACED_MAX;
    const int64_t window = there + LM_HTTP2_STREAM_WINDOW - stream->shelved - aside;
    const int64_t more = window - stream->recv_window;
    const bool is_enough = stream->recv_window >= 0 && left <= (uint64_t)stream->recv_window;
    if (stream->has_ended || is_enough || more < LM_HTTP2_STREAM_WINDOW / 2) return;
    lm_http2_put_number(http2, LM_HTTP2_WINDOW_UPDATE, stream->id, (uint32_t)more);
    stream->recv_window = window;
}
