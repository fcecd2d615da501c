/* http2_frame.h: the frames of HTTP/2 (RFC 9113), headers to structs and back. No state: any
 * thread.
 */
#ifndef LM_WIRE_HTTP2_FRAME_H
#define LM_WIRE_HTTP2_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define LM_HTTP2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

enum {
    LM_HTTP2_PREFACE_BYTES = sizeof LM_HTTP2_PREFACE - 1,
    LM_HTTP2_FRAME_BYTES = 9, /* of a frame's header */
    LM_HTTP2_SETTING_BYTES = 6,
    LM_HTTP2_FRAME_MIN = 16384, /* the least that a peer may be allowed to send in one */
    LM_HTTP2_WINDOW = 65535     /* of a connection, until it is widened */
};

/* As on the wire. Others are skipped. */
enum {
    LM_HTTP2_DATA,
    LM_HTTP2_HEADERS,
    LM_HTTP2_PRIORITY,
    LM_HTTP2_RST_STREAM,
    LM_HTTP2_SETTINGS,
    LM_HTTP2_PUSH_PROMISE,
    LM_HTTP2_PING,
    LM_HTTP2_GOAWAY,
    LM_HTTP2_WINDOW_UPDATE,
    LM_HTTP2_CONTINUATION
};

enum {
    LM_HTTP2_ACK = 1, /* of SETTINGS and PING */
    LM_HTTP2_END_STREAM = 1,
    LM_HTTP2_END_HEADERS = 4,
    LM_HTTP2_PADDED = 8,
    LM_HTTP2_HAS_PRIORITY = 32
};

enum {
    LM_HTTP2_HEADER_TABLE_SIZE = 1,
    LM_HTTP2_ENABLE_PUSH,
    LM_HTTP2_MAX_CONCURRENT_STREAMS,
    LM_HTTP2_INITIAL_WINDOW_SIZE,
    LM_HTTP2_MAX_FRAME_SIZE,
    LM_HTTP2_MAX_HEADER_LIST_SIZE
};

/* Error codes, as on the wire. */
enum lm_http2_error {
    LM_HTTP2_NO_ERROR,
    LM_HTTP2_PROTOCOL_ERROR,
    LM_HTTP2_INTERNAL_ERROR,
    LM_HTTP2_FLOW_CONTROL_ERROR,
    LM_HTTP2_SETTINGS_TIMEOUT,
    LM_HTTP2_STREAM_CLOSED,
    LM_HTTP2_FRAME_SIZE_ERROR,
    LM_HTTP2_REFUSED_STREAM,
    LM_HTTP2_CANCEL,
    LM_HTTP2_COMPRESSION_ERROR,
    LM_HTTP2_CONNECT_ERROR,
    LM_HTTP2_ENHANCE_YOUR_CALM
};

struct lm_http2_frame {
    uint32_t bytes; /* of its payload */
    uint32_t stream;
    uint8_t type;
    uint8_t flags;
};

static inline uint32_t lm_http2_get_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}
static inline void lm_http2_put_u32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

struct lm_http2_setting {
    uint32_t id, value;
};
static inline void lm_http2_write_setting(uint8_t at[LM_HTTP2_SETTING_BYTES],
                                          struct lm_http2_setting setting) {
    at[0] = (uint8_t)(setting.id >> 8);
    at[1] = (uint8_t)setting.id;
    lm_http2_put_u32(at + 2, setting.value);
}

static inline struct lm_http2_frame lm_http2_read_frame(const uint8_t at[LM_HTTP2_FRAME_BYTES]) {
    return (struct lm_http2_frame){.bytes = lm_http2_get_u32(at) >> 8,
                                   .stream = lm_http2_get_u32(at + 5) & 0x7fffffff,
                                   .type = at[3],
                                   .flags = at[4]};
}
static inline void lm_http2_write_frame(uint8_t at[LM_HTTP2_FRAME_BYTES],
                                        struct lm_http2_frame frame) {
    lm_http2_put_u32(at, frame.bytes << 8 | frame.type);
    at[4] = frame.flags;
    lm_http2_put_u32(at + 5, frame.stream);
}

#endif
