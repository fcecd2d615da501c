/* rows_find.c: see rows_find.h. */
#include "formats/rows_find.h"

#include <stdbool.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

static bool is_space(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

/* Behind a string's closing quote; `at` is behind its first one. NULL: it has no end. */
static const char *pass_string(const char *at, const char *end) {
    const char *start = at;
    for (;;) {
        const char *quote = at < end ? memchr(at, '"', (size_t)(end - at)) : NULL;
        if (!quote) return NULL;
        const char *slash = quote;
        while (slash > start && slash[-1] == '\\') slash--;
        at = quote + 1;
        if ((quote - slash) % 2 == 0) return at;
    }
}

/* ---- where a value ends ---- */

struct nest {
    const char *at;
    const char *end;
    size_t depth;
    size_t commas; /* of the outermost array or object */
};

/* Goes to the next bracket or quote, 16 bytes at a time; the last ones are left. */
static void skip_blocks(struct nest *n) {
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), comma = _mm_set1_epi8(',');
    const __m128i bit = _mm_set1_epi8(0x20); /* makes braces of brackets */
    const __m128i open = _mm_set1_epi8('{'), shut = _mm_set1_epi8('}');
    for (; n->end - n->at >= 16; n->at += 16) {
        __m128i block = _mm_loadu_si128((const __m128i *)(const void *)n->at);
        __m128i braces = _mm_or_si128(block, bit);
        __m128i stops =
            _mm_or_si128(_mm_cmpeq_epi8(block, quote),
                         _mm_or_si128(_mm_cmpeq_epi8(braces, open), _mm_cmpeq_epi8(braces, shut)));
        const unsigned found = (unsigned)_mm_movemask_epi8(stops);
        const unsigned before = found ? (found & -found) - 1 : 0xffff;
        if (n->depth == 1) {
            const unsigned commas = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(block, comma));
            n->commas += (size_t)__builtin_popcount(commas & before);
        }
        if (!found) continue;
        n->at += __builtin_ctz(found);
        return;
    }
#else
    (void)n;
#endif
}

/* Behind the bracket that closes the first one; NULL: there is none. */
static const char *pass_nest(struct nest *n) {
    while (n->at < n->end) {
        switch (*n->at++) {
        case '"':
            n->at = pass_string(n->at, n->end);
            if (!n->at) return NULL;
            break;
        case '[':
        case '{': n->depth++; break;
        case ']':
        case '}':
            if (--n->depth == 0) return n->at;
            break;
        case ',': n->commas += n->depth == 1; break;
        default: skip_blocks(n); break;
        }
    }
    return NULL;
}

const char *lm_rows_pass(const char *at, const char *end, size_t *children_out) {
    *children_out = 0;
    if (*at == '"') return pass_string(at + 1, end);
    const char *first = at + 1;
    while (first < end && is_space(*first)) first++;
    struct nest n = {.at = first, .end = end, .depth = 1};
    bool is_empty = first < end && (*first == ']' || *first == '}');
    const char *behind = pass_nest(&n);
    if (behind && !is_empty) *children_out = n.commas + 1;
    return behind;
}

/* ---- where the rows are ---- */

struct finding {
    const char *at;
    const char *end;
    size_t depth;
    const char *key; /* the last string */
    size_t key_bytes;
    bool after_key; /* and a colon behind it */
    bool in_split;  /* at depth 2 */
};

static bool key_is(const struct finding *f, const char *name) {
    return f->key && f->key_bytes == strlen(name) && memcmp(f->key, name, f->key_bytes) == 0;
}

/* Whether the value that begins here is one of the fields. */
static bool is_wanted(const struct finding *f, uint32_t *field_out) {
    static const char *const names[] = {[LM_ROWS_INSTANCES] = "instances",
                                        [LM_ROWS_INPUTS] = "inputs",
                                        [LM_ROWS_RECORDS] = "dataframe_records"};
    if (!f->after_key) return false;
    *field_out = LM_ROWS_SPLIT;
    if (f->depth == 2) return f->in_split && key_is(f, "data");
    for (uint32_t n = 0; f->depth == 1 && n < sizeof names / sizeof names[0]; n++) {
        *field_out = n;
        if (key_is(f, names[n])) return true;
    }
    return false;
}

static void open_nest(struct finding *f) {
    if (f->depth == 1) f->in_split = f->after_key && key_is(f, "dataframe_split");
    f->depth++;
    f->at++;
}

uint32_t lm_rows_find(const char *text, size_t bytes, struct lm_oip_data found[LM_TENSORS_MAX]) {
    uint32_t count = 0, field = 0;
    size_t children;
    struct finding f = {.at = text, .end = text + bytes};
    while (f.at < f.end && count < LM_TENSORS_MAX) {
        char byte = *f.at;
        const char *behind = NULL;
        switch (byte) {
        case '"':
            behind = pass_string(f.at + 1, f.end);
            if (!behind) return count;
            f.key = f.at + 1;
            f.key_bytes = (size_t)(behind - 1 - f.key);
            f.at = behind;
            break;
        case '[':
        case '{':
            if (is_wanted(&f, &field)) {
                behind = lm_rows_pass(f.at, f.end, &children);
                if (!behind) return count;
                found[count++] = (struct lm_oip_data){f.at, (size_t)(behind - f.at), field};
                f.at = behind;
            } else {
                open_nest(&f);
            }
            break;
        case ']':
        case '}':
            if (f.depth > 0) f.depth--;
            f.at++;
            break;
        default: f.at++; break;
        }
        if (!is_space(byte)) f.after_key = byte == ':';
    }
    return count;
}
