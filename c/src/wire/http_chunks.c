/* http_chunks.c: see http_chunks.h. A state per place in the grammar; data alone is taken in
 * pieces, everything else byte by byte, and what is not data is bounded. */
#include "wire/http_chunks.h"

#include "base/limits.h"
#include "wire/http_scan.h"

enum state {
    SIZE, /* the first, since all zero is the start */
    SIZE_BLANK,
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

/* One byte more that says nothing: of an extension, a blank, a leading zero. */
static int idle_byte(struct lm_http_chunks *chunks, struct words words) {
    if (++chunks->extension_bytes > LM_HTTP_EXTENSION_BYTES_MAX)
        return too_much(words, "bytes of chunk extensions", LM_HTTP_EXTENSION_BYTES_MAX);
    return 0;
}

static int size_byte(struct lm_http_chunks *chunks, char byte, struct words words) {
    if (lm_http_byte_is(byte, LM_BYTE_HEX)) {
        if (chunks->left > INT64_MAX >> 4)
            return lm_http_refuse(400, words.why, words.why_bytes,
                                  "a chunk's size: expected one below 2^63, found more");
        chunks->left = chunks->left << 4 | lm_http_hex_value(byte);
        if (chunks->digits == LM_HTTP_CHUNK_DIGITS_MAX) return idle_byte(chunks, words);
        chunks->digits++;
        return 0;
    }
    if (chunks->digits == 0) return expected(chunks, words, "a chunk's size in hexadecimal", byte);
    if (byte == ' ' || byte == '\t') {
        chunks->state = SIZE_BLANK;
        return idle_byte(chunks, words);
    }
    if (byte != ';' && byte != '\r')
        return expected(chunks, words, "a hexadecimal digit, ';' or CR LF", byte);
    chunks->state = byte == ';' ? EXTENSION : SIZE_LF;
    return 0;
}

/* Blanks after a size are bad, and taken where an extension follows (RFC 9112 7.1.1). */
static int blank_byte(struct lm_http_chunks *chunks, char byte, struct words words) {
    if (byte == ' ' || byte == '\t') return idle_byte(chunks, words);
    if (byte != ';') return expected(chunks, words, "';' after a blank behind a size", byte);
    chunks->state = EXTENSION;
    return 0;
}

static int extension_byte(struct lm_http_chunks *chunks, char byte, struct words words) {
    if (byte == '\r') {
        chunks->state = SIZE_LF;
        return 0;
    }
    if (!lm_http_is_plain(byte, ' ', true))
        return expected(chunks, words, "text or CR LF in a chunk's extension", byte);
    return idle_byte(chunks, words);
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
static const struct {
    const char *name;
    size_t bytes;
} refused[] = {{"content-length", 14}, {"transfer-encoding", 17}, {"host", 4}};
enum { REFUSED_NAMES = sizeof refused / sizeof refused[0] };

static void trailer_letter(struct lm_http_chunks *chunks, char byte) {
    for (uint32_t n = 0; n < REFUSED_NAMES; n++) {
        if (chunks->name_bytes >= refused[n].bytes ||
            (byte | 0x20) != refused[n].name[chunks->name_bytes])
            chunks->other_names |= (uint8_t)(1u << n);
    }
    if (chunks->name_bytes < UINT8_MAX) chunks->name_bytes++;
}

static int trailer_is_named(struct lm_http_chunks *chunks, struct words words) {
    for (uint32_t n = 0; n < REFUSED_NAMES; n++) {
        if ((chunks->other_names & 1u << n) || chunks->name_bytes != refused[n].bytes) continue;
        return lm_http_refuse(400, words.why, words.why_bytes,
                              "trailers: expected none that frames or routes, found '%s'",
                              refused[n].name);
    }
    chunks->state = TRAILER_VALUE;
    return 0;
}

static int trailer_byte(struct lm_http_chunks *chunks, char byte, struct words words) {
    if (chunks->state == TRAILER_START) {
        chunks->name_bytes = chunks->other_names = 0;
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
    trailer_letter(chunks, byte);
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
    case SIZE_BLANK: return blank_byte(chunks, byte, words);
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
