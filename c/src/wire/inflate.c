/* inflate.c: see inflate.h. */
#include "wire/inflate.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <zlib.h>

#include "base/error.h"

struct lm_inflater {
    z_stream stream;
};

static const int window_bits[] = {[LM_CODING_GZIP] = 15 + 16, [LM_CODING_DEFLATE] = 15};

int lm_inflater_open(struct lm_inflater **inflater_out) {
    struct lm_inflater *inflater = calloc(1, sizeof *inflater);
    if (!inflater || inflateInit2(&inflater->stream, window_bits[LM_CODING_GZIP]) != Z_OK) {
        free(inflater);
        return lm_error(LUMEN_E_NOMEM, "no memory to inflate compressed bodies");
    }
    *inflater_out = inflater;
    return 0;
}

void lm_inflater_close(struct lm_inflater *inflater) {
    if (!inflater) return;
    inflateEnd(&inflater->stream);
    free(inflater);
}

enum lm_coding lm_coding_find(const char *name, size_t bytes) {
    static const struct {
        const char *name;
        size_t bytes;
        enum lm_coding coding;
    } codings[] = {{"identity", 8, LM_CODING_NONE},
                   {"gzip", 4, LM_CODING_GZIP},
                   {"x-gzip", 6, LM_CODING_GZIP}, /* RFC 9110, 8.4.1.3: the same */
                   {"deflate", 7, LM_CODING_DEFLATE},
                   {"x-protobuf", 10, LM_CODING_PROTOBUF},
                   {"x-protobuf+gzip", 15, LM_CODING_PROTOBUF_GZIP},
                   {"x-protobuf+deflate", 18, LM_CODING_PROTOBUF_DEFLATE}};
    if (bytes == 0) return LM_CODING_NONE;
    for (size_t c = 0; c < sizeof codings / sizeof *codings; c++) {
        if (codings[c].bytes == bytes && strncasecmp(codings[c].name, name, bytes) == 0)
            return codings[c].coding;
    }
    return LM_CODING_UNKNOWN;
}

/* The next piece, as zlib counts. */
static uInt piece(size_t bytes) {
    return bytes < INT_MAX ? (uInt)bytes : INT_MAX;
}

enum lm_status lm_inflate(struct lm_inflater *inflater, enum lm_coding coding, const void *data,
                          size_t bytes, void *to, size_t room, size_t *bytes_out, char *why,
                          size_t why_bytes) {
    z_stream *stream = &inflater->stream;
    const char *name = coding == LM_CODING_GZIP ? "gzip" : "deflate";
    size_t left = bytes, free_bytes = room;
    int code = inflateReset2(stream, window_bits[coding]);
    stream->next_in = (Bytef *)(uintptr_t)data;
    stream->next_out = to;
    while (code == Z_OK) {
        const uInt in = piece(left), out = piece(free_bytes);
        stream->avail_in = in;
        stream->avail_out = out;
        code = inflate(stream, Z_NO_FLUSH);
        left -= in - stream->avail_in;
        free_bytes -= out - stream->avail_out;
        /* RFC 1952, 2.2: a file of several members is what they hold, one behind the other. */
        if (code == Z_STREAM_END && left > 0 && coding == LM_CODING_GZIP)
            code = inflateReset(stream);
    }
    *bytes_out = room - free_bytes;
    if (code == Z_STREAM_END && left == 0) return LM_STATUS_OK;
    if (code == Z_STREAM_END) {
        snprintf(why, why_bytes, "body: expected its end where its %s ends, found %zu bytes more",
                 name, left);
    } else if (code == Z_BUF_ERROR && left == 0) { /* no progress: one of the two has run out */
        snprintf(why, why_bytes, "body: its %s ends too early, after %zu bytes that hold %zu", name,
                 bytes, *bytes_out);
    } else if (code == Z_BUF_ERROR) {
        snprintf(why, why_bytes,
                 "body: its %zu bytes of %s hold more than the %zu bytes that are taken: send it "
                 "uncompressed",
                 bytes, name, room);
        return LM_STATUS_TOO_LARGE;
    } else {
        snprintf(why, why_bytes, "body: expected %s, found %s at byte %zu", name,
                 stream->msg ? stream->msg : "something else", bytes - left);
    }
    return LM_STATUS_BAD_REQUEST;
}
