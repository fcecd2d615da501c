/* test_http2_reader.c: frames of HTTP/2 as they come: settings and sizes exactly at their limits,
 * where a frame may stand, and padding, with frames cut at every byte. */
#include "check.h"
#include "wire/http2_reader.h"

static uint8_t bytes[600];

/* ---- settings ---- */

static void setting(uint32_t id, uint32_t value, enum lm_http2_error error) {
    enum lm_http2_error found = LM_HTTP2_NO_ERROR;
    const struct lm_http2_setting one = {id, value};
    CHECK_AT("setting %u: %u", id, value);
    const char *why = lm_http2_why_wrong_setting(one, &found);
    CHECK((why != NULL) == (error != LM_HTTP2_NO_ERROR));
    if (why) CHECK(found == error);
}

static void settings(void) {
    setting(LM_HTTP2_ENABLE_PUSH, 1, LM_HTTP2_NO_ERROR);
    setting(LM_HTTP2_ENABLE_PUSH, 2, LM_HTTP2_PROTOCOL_ERROR);
    setting(LM_HTTP2_MAX_FRAME_SIZE, 16383, LM_HTTP2_PROTOCOL_ERROR);
    setting(LM_HTTP2_MAX_FRAME_SIZE, 16384, LM_HTTP2_NO_ERROR);
    setting(LM_HTTP2_MAX_FRAME_SIZE, 0xffffff, LM_HTTP2_NO_ERROR);
    setting(LM_HTTP2_MAX_FRAME_SIZE, 0x1000000, LM_HTTP2_PROTOCOL_ERROR);
    setting(LM_HTTP2_INITIAL_WINDOW_SIZE, 0, LM_HTTP2_NO_ERROR);
    setting(LM_HTTP2_INITIAL_WINDOW_SIZE, 0x7fffffff, LM_HTTP2_NO_ERROR);
    setting(LM_HTTP2_INITIAL_WINDOW_SIZE, 0x80000000, LM_HTTP2_FLOW_CONTROL_ERROR);
    setting(LM_HTTP2_MAX_CONCURRENT_STREAMS, UINT32_MAX, LM_HTTP2_NO_ERROR);
    setting(77, UINT32_MAX, LM_HTTP2_NO_ERROR); /* of nobody */
}

/* ---- sizes and places ---- */

static void size(uint8_t type, uint8_t flags, uint32_t count, bool is_right) {
    const struct lm_http2_frame frame = {count, 1, type, flags};
    CHECK_AT("a frame of type %u, flags %u, %u bytes", type, flags, count);
    CHECK(lm_http2_has_wrong_size(&frame, 20000) == !is_right);
}

static void sizes(void) {
    size(LM_HTTP2_DATA, 0, 20000, true);
    size(LM_HTTP2_DATA, 0, 20001, false);
    size(LM_HTTP2_DATA, LM_HTTP2_PADDED, 0, false);
    size(LM_HTTP2_HEADERS, LM_HTTP2_PADDED, 1, true);
    size(LM_HTTP2_PRIORITY, 0, 5, true);
    size(LM_HTTP2_PRIORITY, 0, 6, false);
    size(LM_HTTP2_RST_STREAM, 0, 4, true);
    size(LM_HTTP2_RST_STREAM, 0, 3, false);
    size(LM_HTTP2_SETTINGS, 0, 0, true);
    size(LM_HTTP2_SETTINGS, 0, 12, true);
    size(LM_HTTP2_SETTINGS, 0, 13, false);
    size(LM_HTTP2_SETTINGS, LM_HTTP2_ACK, 0, true);
    size(LM_HTTP2_SETTINGS, LM_HTTP2_ACK, 6, false);
    size(LM_HTTP2_PING, 0, 8, true);
    size(LM_HTTP2_PING, 0, 7, false);
    size(LM_HTTP2_GOAWAY, 0, 7, false);
    size(LM_HTTP2_GOAWAY, 0, 8, true);
    size(LM_HTTP2_GOAWAY, 0, 300, true);
    size(LM_HTTP2_WINDOW_UPDATE, 0, 4, true);
    size(LM_HTTP2_WINDOW_UPDATE, 0, 8, false);
    size(77, 0, 13, true);
}

/* Where streams up to 5 have been opened, and the header block of one (0: of none) goes on. */
static void place(uint8_t type, uint32_t stream, uint32_t block_of, bool is_right) {
    const struct lm_http2_reader reader = {.frame = {0, stream, type, 0}, .block_of = block_of};
    CHECK_AT("a frame of type %u, stream %u, amid %u", type, stream, block_of);
    CHECK((lm_http2_why_misplaced(&reader, 5) == NULL) == is_right);
}

static void places(void) {
    place(LM_HTTP2_DATA, 5, 0, true);
    place(LM_HTTP2_DATA, 7, 0, false);
    place(LM_HTTP2_DATA, 0, 0, false);
    place(LM_HTTP2_HEADERS, 7, 0, true);
    place(LM_HTTP2_HEADERS, 7, 7, false);
    place(LM_HTTP2_RST_STREAM, 7, 0, false);
    place(LM_HTTP2_SETTINGS, 0, 0, true);
    place(LM_HTTP2_SETTINGS, 1, 0, false);
    place(LM_HTTP2_PING, 0, 7, false);
    place(LM_HTTP2_WINDOW_UPDATE, 0, 0, true);
    place(LM_HTTP2_WINDOW_UPDATE, 5, 0, true);
    place(LM_HTTP2_WINDOW_UPDATE, 6, 0, false);
    place(LM_HTTP2_CONTINUATION, 7, 7, true);
    place(LM_HTTP2_CONTINUATION, 5, 7, false);
    place(LM_HTTP2_CONTINUATION, 7, 0, false);
    place(77, 0, 0, true);
    place(77, 0, 7, false);
}

/* ---- payloads in pieces ---- */

/* Reads a frame's header in pieces of so many bytes. */
static struct lm_http2_reader begun(struct lm_http2_frame frame, size_t piece) {
    uint8_t header[LM_HTTP2_FRAME_BYTES];
    struct lm_http2_reader reader = {0};
    lm_http2_write_frame(header, frame);
    for (size_t at = 0; at < sizeof header;) {
        CHECK(!reader.in_frame);
        const size_t left = sizeof header - at;
        at += lm_http2_read_header(&reader, header + at, left < piece ? left : piece);
    }
    CHECK(reader.in_frame && reader.left == frame.bytes && reader.frame.stream == frame.stream);
    return reader;
}

/* DATA of this many bytes and so much padding. */
static void padded(uint32_t data, uint8_t pad, size_t piece) {
    const uint32_t all = 1 + data + pad;
    struct lm_http2_reader reader =
        begun((struct lm_http2_frame){all, 3, LM_HTTP2_DATA, LM_HTTP2_PADDED}, piece);
    size_t found = 0, at = 0;
    memset(bytes, 'x', sizeof bytes);
    bytes[0] = pad;
    memset(bytes + 1, 'd', data);
    while (reader.left > 0) {
        const size_t left = all - at, count = left < piece ? left : piece;
        const struct lm_http2_data part = lm_http2_read_data(&reader, bytes + at, count);
        CHECK(!part.is_wrong && part.is_first == (at == 0));
        if (part.is_first) CHECK(part.before == 1 && part.whole == data);
        for (size_t d = 0; d < part.data; d++) CHECK(bytes[at + part.before + d] == 'd');
        found += part.data;
        at += part.before + part.data + part.behind;
        CHECK(reader.left == all - at);
    }
    CHECK(found == data);
}

static void data(void) {
    for (size_t piece = 1; piece < 12; piece++) {
        padded(0, 0, piece);
        padded(0, 7, piece);
        padded(5, 0, piece);
        padded(5, 7, piece);
        padded(300, 255, piece);
    }
    /* As much padding as there is payload behind its length is the most. */
    struct lm_http2_reader reader =
        begun((struct lm_http2_frame){5, 3, LM_HTTP2_DATA, LM_HTTP2_PADDED}, 9);
    bytes[0] = 5;
    CHECK(lm_http2_read_data(&reader, bytes, 5).is_wrong);
}

/* Frames of few bytes are collected whole; what GOAWAY says to people is passed over. */
static void few(void) {
    for (size_t piece = 1; piece < 30; piece++) {
        const struct lm_http2_frame goaway = {8 + 11, 0, LM_HTTP2_GOAWAY, 0};
        struct lm_http2_reader reader = begun(goaway, piece);
        uint32_t units = 0;
        for (size_t b = 0; b < goaway.bytes; b++) bytes[b] = (uint8_t)b;
        for (size_t at = 0; reader.left > 0;) {
            bool is_unit = false;
            const size_t left = goaway.bytes - at;
            at += lm_http2_read_few(&reader, bytes + at, left < piece ? left : piece, &is_unit);
            CHECK(!is_unit || (at == 8 && memcmp(reader.small, bytes, 8) == 0));
            units += is_unit;
        }
        CHECK(units == 1);
    }
}

int main(void) {
    check_watchdog(120, "frames of HTTP/2");
    settings();
    sizes();
    places();
    data();
    few();
    return check_finish("test_http2_reader");
}
