/* reading.h: a text on its way to tokens, as the sources of this room hand it on: pieces.c (added
 * tokens) -> stages.c (normalizers) -> window.c -> splits.c (pre-tokenizers) -> wordpiece.c,
 * unigram.c, bpe.c. Of one call, on one thread.
 */
#ifndef LM_TEXT_READING_H
#define LM_TEXT_READING_H

#include <stdbool.h>

#include "text/file.h"
#include "text/out.h"

enum {
    LM_TEXT_PENDING_MAX = 48,                 /* marks that are put in order together */
    LM_TEXT_START = LM_TEXT_PREFIX_BYTES_MAX, /* of a window: prefixes have room before it */
    LM_TEXT_WINDOW_SPARE = 8,                 /* bytes behind it */
};

/* A code point, and where in the text it came from. */
struct lm_text_char {
    uint32_t point, from, to;
};

/* The chars of a segment that a stage holds back, for they may still change. */
struct lm_text_held {
    struct lm_text_char chars[LM_TEXT_PENDING_MAX];
    uint8_t marks[LM_TEXT_PENDING_MAX]; /* their classes */
    uint32_t count, bytes;
    bool has; /* COMPOSE: chars[0] is a starter; PREPEND: it has begun; CLUSTERS: a long one */
    uint8_t before,
        picture; /* CLUSTERS: the class of the last char; 1: a picture, 2: and a joiner */
    bool consonant, linked;
};

/* A word of the direct WordPiece so far, normalised, and the combining marks at its end, which are
 * kept in the order of their classes (Unicode's canonical ordering). */
struct lm_text_word {
    uint8_t bytes[LM_TEXT_WORD_CHARS * 4];
    uint32_t used, chars, marks;
    uint16_t mark_at[LM_TEXT_WORD_CHARS];
    uint8_t mark_class[LM_TEXT_WORD_CHARS];
};

/* Normalised text, of which pieces are cut. */
struct lm_text_window {
    uint8_t *bytes;
    uint32_t *from, *to;     /* of each byte; NULL: nobody asks */
    uint32_t used, capacity; /* its end, and the most that it may be; it begins at LM_TEXT_START */
    bool continues;          /* its start is not the start of a segment */
};

struct lm_text_reading {
    const struct lm_tokenizer *tokenizer;
    const struct lm_text_out *out;
    uint32_t count;
    bool is_direct;
    bool is_first; /* the segment at the text's start */
    struct lm_text_window window;
    void *room; /* of the model, behind the window */
    union {
        struct lm_text_word word;
        struct lm_text_held held[LM_TEXT_STAGES_MAX];
    };
};

static inline void lm_text_push(struct lm_text_reading *reading, uint32_t id, uint32_t from,
                                uint32_t to) {
    const struct lm_text_out *out = reading->out;
    const uint32_t at = reading->count - out->skipped; /* of those that are: beyond all */
    if (at < out->capacity) {
        out->ids[at] = id;
        if (out->places) out->places[at] = (struct lm_text_place){from, to};
    }
    reading->count++;
}

/* A token of the window's bytes. */
static inline void lm_text_push_bytes(struct lm_text_reading *reading, uint32_t id, uint32_t from,
                                      uint32_t to) {
    const struct lm_text_window *window = &reading->window;
    const bool asks = window->from != NULL;
    lm_text_push(reading, id, asks ? window->from[from] : 0, asks ? window->to[to - 1] : 0);
}

/* The token that is these bytes, or LM_TEXT_NO_ID. */
static inline uint32_t lm_text_token_of(const struct lm_tokenizer *tokenizer, const uint8_t *at,
                                        uint32_t bytes) {
    uint32_t node = tokenizer->header->root;
    for (uint32_t b = 0; b < bytes && node; b++) node = lm_text_child_of(tokenizer, node, at[b]);
    return node && tokenizer->values[node] ? tokenizer->values[node] - 1 : LM_TEXT_NO_ID;
}

#endif
