/* http_chunks.c: see http_chunks.h. A state per place in the grammar; data alone is taken in
 * pieces, everything else byte by byte, and what is not data is bounded. */
#include "parts/http_chunks.h"

#include "base/limits.h"
#include "parts/http_scan.h"

enum state {
    SIZE, /* the first, since all zero is the start */
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_START,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF,
    DONE,
    REFUSED
};

_Static_assert(LM_HTTP_CHUNK_DIGITS_MAX <= 16, "a size is checked before it passes 64 bits");
_Static_assert(LM_HTTP_EXTENSION_BYTES_MAX < UINT16_MAX && LM_HTTP_TRAILER_BYTES_MAX < UINT16_MAX,
               "counted in 16 bits");

struct words {
    char *why;
    size_t why_bytes;
};

static int expected(const struct lm_http_chunks *chunks, struct words words, const char *what,
                    char found) {
    return lm_http_refuse(400, words.why, words.why_bytes, "after chunk %u: expected %s, found %s",
                          chunks->chunk_count, what,
                          lm_http_quote((struct lm_slice){&found, 1}).text);
}

static int too_much(struct words words, const char *what, unsigned most) {
    return lm_http_refuse(400, words.why, words.why_bytes, "%s: expected at most %u, found more",
                          what, most);
}

static int size_byte(struct lm_http_chunks *chunks, char byte, struct words words) {
    if (lm_http_byte_is(byte, LM_BYTE_HEX)) {
        if (chunks->digits == LM_HTTP_CHUNK_DIGITS_MAX)
            return too_much(words, "digits of a chunk's size", LM_HTTP_CHUNK_DIGITS_MAX);
        chunks->digits++;
        chunks->left = chunks->left << 4 | lm_http_hex_value(byte);
        if (chunks->left > INT64_MAX)
            return lm_http_refuse(400, words.why, words.why_bytes,
                                  "a chunk's size: expected one below 2^63, found more");
        return 0;
    }
    if (chunks->digits == 0) return expected(chunks, words, "a chunk's size in hexadecimal", byte);
    if (byte != ';' && byte != '\r')
        return expected(chunks, words, "a hexadecimal digit, ';' or CR LF", byte);
    chunks->state = byte == ';' ? EXTENSION : SIZE_LF;
    return 0;
}

static int extension_byte(struct lm_http_chunks *chunks, char byte, struct words words) {
    if (byte == '\r') {
        chunks->state = SIZE_LF;
        return 0;
    }
    if (!lm_http_is_plain(byte, ' ', true))
        return expected(chunks, words, "text or CR LF in a chunk's extension", byte);
    if (++chunks->extension_bytes > LM_HTTP_EXTENSION_BYTES_MAX)
        return too_much(words, "bytes of chunk extensions", LM_HTTP_EXTENSION_BYTES_MAX);
    return 0;
}

static int size_is_read(struct lm_http_chunks *chunks, struct words words) {
    chunks->digits = 0;
    if (chunks->left == 0) {
        chunks->state = TRAILER_START;
        return 0;
    }
    if (chunks->chunk_count == LM_HTTP_CHUNKS_MAX)
        return too_much(words, "chunks of one body", LM_HTTP_CHUNKS_MAX);
    chunks->chunk_count++;
    chunks->state = DATA;
    return 0;
}

/* A trailer that would change how the message is read is a trick. */
static int trailer_is_named(struct lm_http_chunks *chunks, struct words words) {
    struct lm_slice name = {chunks->name, chunks->name_bytes};
    if (lm_http_same_word(name, "content-length", 14) ||
        lm_http_same_word(name, "transfer-encoding", 17) || lm_http_same_word(name, "host", 4))
        return lm_http_refuse(400, words.why, words.why_bytes,
                              "trailers: expected none that frames or routes, found %s",
                              lm_http_quote(name).text);
    chunks->state = TRAILER_VALUE;
    return 0;
}

static int trailer_byte(struct lm_http_chunks *chunks, char byte, struct words words) {
    if (chunks->state == TRAILER_START) {
        chunks->name_bytes = 0;
        chunks->state = TRAILER_NAME;
    }
    if (++chunks->trailer_bytes > LM_HTTP_TRAILER_BYTES_MAX)
        return too_much(words, "bytes of trailers", LM_HTTP_TRAILER_BYTES_MAX);
    if (chunks->state == TRAILER_VALUE) {
        if (byte == '\r')
            chunks->state = TRAILER_LF;
        else if (!lm_http_is_plain(byte, ' ', true))
            return expected(chunks, words, "text or CR LF in a trailer's value", byte);
        return 0;
    }
    if (byte == ':' && chunks->name_bytes > 0) return trailer_is_named(chunks, words);
    if (!lm_http_byte_is(byte, LM_BYTE_TOKEN))
        return expected(chunks, words, "a trailer's name and colon, or an empty line", byte);
    if (chunks->name_bytes < sizeof chunks->name) chunks->name[chunks->name_bytes++] = byte;
    return 0;
}

static int one_byte(struct lm_http_chunks *chunks, char byte, char wanted, enum state next,
                    struct words words) {
    if (byte != wanted)
        return expected(chunks, words, wanted == '\r' ? "CR after a chunk's data" : "LF after CR",
                        byte);
    chunks->state = (uint8_t)next;
    return 0;
}

/* One byte that is not data. 0, or a refusal. */
static int step(struct lm_http_chunks *chunks, char byte, struct words words) {
    switch ((enum state)chunks->state) {
    case SIZE: return size_byte(chunks, byte, words);
    case EXTENSION: return extension_byte(chunks, byte, words);
    case SIZE_LF:
        return byte == '\n' ? size_is_read(chunks, words)
                            : one_byte(chunks, byte, '\n', SIZE_LF, words);
    case DATA_CR: return one_byte(chunks, byte, '\r', DATA_LF, words);
    case DATA_LF: return one_byte(chunks, byte, '\n', SIZE, words);
    case TRAILER_START:
        if (byte == '\r') return one_byte(chunks, byte, '\r', END_LF, words);
        return trailer_byte(chunks, byte, words);
    case TRAILER_NAME:
    case TRAILER_VALUE: return trailer_byte(chunks, byte, words);
    case TRAILER_LF: return one_byte(chunks, byte, '\n', TRAILER_START, words);
    case END_LF: return one_byte(chunks, byte, '\n', DONE, words);
    case DATA:
    case DONE:
    case REFUSED: break;
    }
    return lm_http_refuse(400, words.why, words.why_bytes,
                          "expected nothing after a bad chunk, found more");
}

static struct lm_slice take(struct lm_http_chunks *chunks, const char *bytes, size_t count) {
    struct lm_slice data = {bytes, chunks->left < count ? (size_t)chunks->left : count};
    chunks->left -= data.bytes;
    if (chunks->left == 0) chunks->state = DATA_CR;
    return data;
}

int lm_http_chunks_feed(struct lm_http_chunks *chunks, const char *bytes, size_t count,
                        size_t *used_out, struct lm_slice *data_out, char *why, size_t why_bytes) {
    struct words words = {why, why_bytes};
    int refusal = chunks->state == REFUSED ? step(chunks, 0, words) : 0;
    size_t used = 0;
    *data_out = (struct lm_slice){0};
    while (used < count && refusal == 0 && chunks->state != DONE && !data_out->at) {
        if (chunks->state == DATA) {
            *data_out = take(chunks, bytes + used, count - used);
            used += data_out->bytes;
        } else {
            refusal = step(chunks, bytes[used], words);
            if (refusal == 0) used++;
        }
    }
    *used_out = used;
    if (refusal < 0) {
        chunks->state = REFUSED;
        return refusal;
    }
    if (data_out->at) return LM_HTTP_CHUNKS_DATA;
    return chunks->state == DONE ? LM_HTTP_CHUNKS_DONE : LM_HTTP_CHUNKS_MORE;
}
