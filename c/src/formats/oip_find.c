/* oip_find.c: see oip_find.h. */
#include "formats/oip_find.h"

#include <stdbool.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* ---- where an array ends ---- */

struct brackets {
    const char *at;
    const char *end;
    size_t depth;
};

/* Goes on to the bracket that closes the array; false at a quote or at `stop`. */
static bool close_in(struct brackets *b, const char *stop) {
    for (; b->at < stop; b->at++) {
        if (*b->at == '"') return false;
        b->depth += *b->at == '[';
        if (*b->at == ']' && --b->depth == 0) return true;
    }
    return false;
}

/* Passes over 16 bytes at a time, as long as the array cannot end among them. */
static void skip_blocks(struct brackets *b) {
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), open = _mm_set1_epi8('['), shut = _mm_set1_epi8(']');
    for (; b->end - b->at >= 16; b->at += 16) {
        __m128i block = _mm_loadu_si128((const __m128i *)(const void *)b->at);
        __m128i shuts = _mm_cmpeq_epi8(block, shut), opens = _mm_cmpeq_epi8(block, open);
        __m128i quotes = _mm_cmpeq_epi8(block, quote);
        if (_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(shuts, opens), quotes)) == 0) continue;
        if (_mm_movemask_epi8(quotes)) return;
        size_t shut_count = (size_t)__builtin_popcount((unsigned)_mm_movemask_epi8(shuts));
        if (shut_count >= b->depth) return;
        b->depth += (size_t)__builtin_popcount((unsigned)_mm_movemask_epi8(opens)) - shut_count;
    }
#else
    (void)b;
#endif
}

/* Bytes of the array that begins at `text`; 0 when it does not end, or holds a string. */
static size_t array_bytes(const char *text, const char *end) {
    struct brackets b = {.at = text + 1, .end = end, .depth = 1};
    while (b.at < end) {
        skip_blocks(&b);
        const char *stop = end - b.at > 16 ? b.at + 16 : end;
        if (close_in(&b, stop)) return (size_t)(b.at + 1 - text);
        if (b.at < stop) return 0;
    }
    return 0;
}

/* ---- where arrays are ---- */

struct finding {
    const char *at;
    const char *end;
    size_t depth;
    const char *key; /* the last string */
    size_t key_bytes;
    bool key_is_inputs; /* of the outermost object */
    bool in_inputs;
    uint32_t input;
};

/* Passes over a string, which may be a key; false when it has no end. */
static bool pass_string(struct finding *f) {
    f->key = f->at + 1;
    for (const char *from = f->key;;) {
        const char *quote = memchr(from, '"', (size_t)(f->end - from));
        if (!quote) return false;
        const char *slash = quote;
        while (slash > f->key && slash[-1] == '\\') slash--;
        f->at = from = quote + 1;
        if ((quote - slash) % 2 == 0) break;
    }
    f->key_bytes = (size_t)(f->at - 1 - f->key);
    return true;
}

static bool key_is(const struct finding *f, const char *name) {
    return f->key && f->key_bytes == strlen(name) && memcmp(f->key, name, f->key_bytes) == 0;
}

static void step(struct finding *f) {
    switch (*f->at++) {
    case '{':
    case '[':
        f->depth++;
        if (f->depth == 2) {
            f->in_inputs = f->key_is_inputs && f->at[-1] == '[';
            f->input = 0;
        }
        break;
    case '}':
    case ']':
        if (f->depth > 0) f->depth--;
        if (f->depth < 2) f->in_inputs = false;
        break;
    case ':':
        if (f->depth == 1) f->key_is_inputs = key_is(f, "inputs");
        break;
    case ',':
        if (f->depth == 2) f->input++;
        break;
    default: break;
    }
}

uint32_t lm_oip_find_data(const char *text, size_t bytes,
                          struct lm_oip_data found[LM_TENSORS_MAX]) {
    uint32_t count = 0;
    bool after_data = false; /* at depth 3, after "data": and white space */
    struct finding f = {.at = text, .end = text + bytes};
    while (f.at < f.end && count < LM_TENSORS_MAX) {
        char byte = *f.at;
        if (byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t') {
            f.at++;
            continue;
        }
        if (byte == '"') {
            if (!pass_string(&f)) break;
            after_data = false;
            continue;
        }
        size_t array = after_data && byte == '[' ? array_bytes(f.at, f.end) : 0;
        after_data = byte == ':' && f.depth == 3 && f.in_inputs && key_is(&f, "data");
        if (array) {
            found[count++] = (struct lm_oip_data){f.at, array, f.input};
            f.at += array;
        } else {
            step(&f);
        }
    }
    return count;
}
