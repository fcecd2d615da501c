/* window.c: see window.h. */
#include "text/window.h"

#include <string.h>

#include "text/added.h"
#include "text/splits.h"
#include "text/utf8.h"

static const uint8_t stand_in[3] = {0xE2, 0x96, 0x81}; /* U+2581, Metaspace's blank */

/* The bytes of the blank at `at`, or 0. */
static uint32_t blank_at(const uint8_t *at) {
    if (*at == ' ') return 1;
    return memcmp(at, stand_in, sizeof stand_in) == 0 ? sizeof stand_in : 0;
}

/* Where the window can be cut: the last blank behind what is none. */
static uint32_t find_cut(const struct lm_text_reading *reading) {
    const struct lm_text_window *window = &reading->window;
    for (uint32_t at = window->used - 1; at > LM_TEXT_START; at--) {
        if (!blank_at(window->bytes + at)) continue;
        if (lm_text_follows_blank(reading->tokenizer, window->bytes + LM_TEXT_START,
                                  window->bytes + at))
            continue;
        if (at >= LM_TEXT_START + sizeof stand_in && blank_at(window->bytes + at - sizeof stand_in))
            continue;
        return at;
    }
    return window->used;
}

/* Added tokens of the normalised text, and what lies between them. */
static void read_window(struct lm_text_reading *reading, uint32_t to) {
    const struct lm_tokenizer *tokenizer = reading->tokenizer;
    struct lm_text_window *window = &reading->window;
    const uint8_t *bytes = window->bytes, *end = bytes + to;
    uint32_t from = LM_TEXT_START, at = tokenizer->header->normalised ? from : to;
    while (at < to) {
        struct lm_text_added added;
        const uint32_t length = lm_text_find_added(tokenizer, 1, bytes + at, end, &added);
        if (!length || (added.flags & LM_TEXT_SINGLE_WORD &&
                        lm_text_hides(tokenizer, bytes + LM_TEXT_START, bytes + at, length, end))) {
            at += length ? length : 1;
            continue;
        }
        uint32_t begins = at, ends = at + length;
        if (added.flags & LM_TEXT_LSTRIPS)
            begins -= lm_text_blanks_before(tokenizer, bytes + from, bytes + at);
        if (added.flags & LM_TEXT_RSTRIPS) ends += lm_text_blanks(tokenizer, bytes + ends, end);
        lm_text_split_up(reading, from, begins);
        lm_text_push_bytes(reading, added.id, begins, ends);
        window->continues = false;
        from = at = ends;
    }
    lm_text_split_up(reading, from, to);
}

static void take_stretch(struct lm_text_reading *reading, uint32_t to) {
    struct lm_text_window *window = &reading->window;
    const uint32_t rest = window->used - to;
    if (to > LM_TEXT_START) read_window(reading, to);
    memmove(window->bytes + LM_TEXT_START, window->bytes + to, rest);
    if (window->from) {
        memmove(window->from + LM_TEXT_START, window->from + to, rest * sizeof *window->from);
        memmove(window->to + LM_TEXT_START, window->to + to, rest * sizeof *window->to);
    }
    window->used = LM_TEXT_START + rest;
    window->continues = true;
}

void lm_text_window_put(struct lm_text_reading *reading, struct lm_text_char given) {
    struct lm_text_window *window = &reading->window;
    if (window->used + 4 > window->capacity) {
        memset(window->bytes + window->used, 0, LM_TEXT_WINDOW_SPARE);
        take_stretch(reading, find_cut(reading));
    }
    const uint32_t bytes = lm_utf8_write(window->bytes + window->used, given.point);
    for (uint32_t b = 0; window->from && b < bytes; b++) {
        window->from[window->used + b] = given.from;
        window->to[window->used + b] = given.to;
    }
    window->used += bytes;
}

void lm_text_window_end(struct lm_text_reading *reading) {
    take_stretch(reading, reading->window.used);
}
