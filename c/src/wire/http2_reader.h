/* http2_reader.h: the frames of a connection of HTTP/2 as they come in pieces: headers, payloads of
 * few bytes, and what may be wrong with them. What they mean is its caller's. One thread each.
 */
#ifndef LM_WIRE_HTTP2_READER_H
#define LM_WIRE_HTTP2_READER_H

#include <stdbool.h>

#include "wire/http2_frame.h"

struct lm_http2_reader {
    uint8_t header_used, small_used;
    uint8_t header[LM_HTTP2_FRAME_BYTES];
    uint8_t small[8]; /* of a payload of few bytes, or of a setting */
    struct lm_http2_frame frame;
    uint32_t left;     /* of its payload */
    uint32_t pad;      /* of that: padding at its end */
    uint32_t block_of; /* the stream whose header block goes on; 0: none does */
    bool in_frame;     /* its header is read */
    bool pad_known;
    uint8_t block_flags; /* of its HEADERS */
};

/* Takes bytes of a frame's header, of which `in_frame` then says whether it is whole. Returns how
 * many. */
size_t lm_http2_read_header(struct lm_http2_reader *reader, const uint8_t *bytes, size_t count);
/* Why the frame may not come here, as its header says; NULL: it may. `last_stream`: the highest
 * that was opened. */
const char *lm_http2_why_misplaced(const struct lm_http2_reader *reader, uint32_t last_stream);
/* `bytes_max`: of a payload. */
bool lm_http2_has_wrong_size(const struct lm_http2_frame *frame, uint32_t bytes_max);
/* Takes bytes of a payload that is read in units of few bytes, or is nobody's business. Returns how
 * many; `is_unit_out`: `small` holds one. */
size_t lm_http2_read_few(struct lm_http2_reader *reader, const uint8_t *bytes, size_t count,
                         bool *is_unit_out);
/* A piece of what may be padded: what comes before its data, the data, and the padding behind them,
 * in bytes. */
struct lm_http2_data {
    size_t before, data, behind;
    bool is_first;  /* of its frame: `pad` is known from here on */
    bool is_wrong;  /* there is more padding than payload */
    uint32_t whole; /* of the first: the data of the whole frame */
};
struct lm_http2_data lm_http2_read_data(struct lm_http2_reader *reader, const uint8_t *bytes,
                                        size_t count);
/* The payload of HEADERS without their padding and the priority that may stand before them. false:
 * there is less than these. */
bool lm_http2_strip(const struct lm_http2_frame *frame, const uint8_t **at, size_t *bytes);

/* Of SETTINGS, in `small`. */
static inline struct lm_http2_setting lm_http2_read_setting(const struct lm_http2_reader *reader) {
    return (struct lm_http2_setting){(uint32_t)reader->small[0] << 8 | reader->small[1],
                                     lm_http2_get_u32(reader->small + 2)};
}
/* A sentence on why the setting is refused; NULL: it is not. */
const char *lm_http2_why_wrong_setting(struct lm_http2_setting setting,
                                       enum lm_http2_error *error_out);

#endif
