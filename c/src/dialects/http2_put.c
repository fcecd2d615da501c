/* http2_put.c: see http2_put.h. */
#include "dialects/http2_put.h"

#include <string.h>

#include "base/error.h"

/* A step says at most the status of a call, its reset, and that two windows widen. Beside that
 * there is always room for how a connection ends: a notice with its PING, and one GOAWAY. */
enum { WHY_BYTES_MAX = 200, NOTICE_BYTES_MAX = 60 };
enum {
    FRAME = LM_HTTP2_FRAME_BYTES,
    STEP_ROOM = FRAME + LM_GRPC_STATUS_BYTES_MAX + 3 * (FRAME + 4),
    LAST_ROOM = (FRAME + 8 + NOTICE_BYTES_MAX) + (FRAME + 8) + (FRAME + 8 + WHY_BYTES_MAX)
};
_Static_assert(LM_HTTP2_CONTROL_BYTES >= STEP_ROOM + LAST_ROOM, "room for a step");

bool lm_http2_has_room(const struct lm_http2_carrier *http2) {
    return !http2->busy ||
           sizeof http2->busy->control - http2->busy->control_used >= (size_t)STEP_ROOM + LAST_ROOM;
}

void lm_http2_put(struct lm_http2_carrier *http2, uint8_t type, uint8_t flags, uint32_t stream,
                  const uint8_t *payload, uint32_t bytes) {
    const size_t needed = LM_HTTP2_FRAME_BYTES + bytes;
    struct lm_http2_busy *busy = lm_http2_busy(http2);
    const bool has_room = needed <= sizeof busy->control - busy->control_used;
    LM_DEBUG_ASSERT(has_room);
    if (!has_room) { /* whoever waited for the frame would wait for ever */
        http2->has_failed = http2->is_closing = true;
        return;
    }
    uint8_t *at = busy->control + busy->control_used;
    lm_http2_write_frame(at, (struct lm_http2_frame){bytes, stream, type, flags});
    if (bytes) memcpy(at + LM_HTTP2_FRAME_BYTES, payload, bytes);
    busy->control_used = (uint16_t)(busy->control_used + needed);
}

void lm_http2_put_number(struct lm_http2_carrier *http2, uint8_t type, uint32_t stream,
                         uint32_t number) {
    uint8_t payload[4];
    lm_http2_put_u32(payload, number);
    lm_http2_put(http2, type, 0, stream, payload, sizeof payload);
}

void lm_http2_put_reset(struct lm_http2_carrier *http2, uint32_t stream,
                        enum lm_http2_error error) {
    if (error != LM_HTTP2_NO_ERROR && error != LM_HTTP2_REFUSED_STREAM) http2->resets++;
    lm_http2_put_number(http2, LM_HTTP2_RST_STREAM, stream, error);
}

static void put_last(struct lm_http2_carrier *http2, uint32_t last_stream,
                     enum lm_http2_error error, const char *why, size_t most) {
    uint8_t payload[8 + WHY_BYTES_MAX];
    const size_t bytes = strnlen(why, most);
    lm_http2_put_u32(payload, last_stream);
    lm_http2_put_u32(payload + 4, error);
    memcpy(payload + 8, why, bytes);
    lm_http2_put(http2, LM_HTTP2_GOAWAY, 0, 0, payload, (uint32_t)(8 + bytes));
}

void lm_http2_put_goaway(struct lm_http2_carrier *http2, enum lm_http2_error error,
                         const char *why) {
    if (http2->is_closing) return;
    http2->is_closing = true;
    put_last(http2, http2->last_stream, error, why, WHY_BYTES_MAX);
}

static const uint8_t notice[8] = "goaway?";

void lm_http2_put_notice(struct lm_http2_carrier *http2, uint64_t now_ns, const char *why) {
    if (http2->is_closing || http2->noticed_ns) return;
    http2->noticed_ns = now_ns;
    put_last(http2, INT32_MAX, LM_HTTP2_NO_ERROR, why, NOTICE_BYTES_MAX);
    lm_http2_put(http2, LM_HTTP2_PING, 0, 0, notice, sizeof notice);
}

void lm_http2_take_pong(struct lm_http2_carrier *http2, const uint8_t payload[8]) {
    if (http2->noticed_ns && memcmp(payload, notice, sizeof notice) == 0)
        lm_http2_put_goaway(http2, LM_HTTP2_NO_ERROR, "as announced");
}

void lm_http2_fail(struct lm_http2_carrier *http2, enum lm_http2_error error, const char *why) {
    http2->has_failed = true;
    lm_http2_put_goaway(http2, error, why);
}
