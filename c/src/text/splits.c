/* splits.c: see splits.h. */
#include "text/splits.h"

#include "text/bpe.h"
#include "text/pattern.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

static void split(struct lm_text_reading *reading, uint32_t number, uint32_t from, uint32_t to);

/* ---- what becomes of matches ---- */

struct pieces {
    struct lm_text_reading *reading;
    uint32_t number; /* of the split */
    uint32_t from, to;
    bool is_held, is_match; /* a piece that others may join */
};

static void release(struct pieces *pieces) {
    if (pieces->is_held) split(pieces->reading, pieces->number + 1, pieces->from, pieces->to);
    pieces->is_held = false;
}

/* Whether a piece joins the one that is held. */
static bool joins(const struct pieces *pieces, enum lm_text_behaviour behaviour, bool is_match) {
    if (!pieces->is_held) return false;
    switch (behaviour) {
    case LM_TEXT_CONTIGUOUS: return pieces->is_match == is_match;
    case LM_TEXT_WITH_PREVIOUS: return is_match && !pieces->is_match;
    case LM_TEXT_WITH_NEXT: return !is_match && pieces->is_match;
    case LM_TEXT_ISOLATED:
    case LM_TEXT_REMOVED:
    case LM_TEXT_BEHAVIOURS: break;
    }
    return false;
}

static void add(struct pieces *pieces, uint32_t from, uint32_t to, bool is_match) {
    const struct lm_text_split *what = &pieces->reading->tokenizer->splits[pieces->number];
    const enum lm_text_behaviour behaviour = (enum lm_text_behaviour)what->behaviour;
    if (from == to) return;
    is_match = is_match != (what->is_inverted != 0);
    if (joins(pieces, behaviour, is_match)) {
        pieces->to = to;
    } else {
        release(pieces);
        pieces->from = from;
        pieces->to = to;
        pieces->is_held = behaviour != LM_TEXT_REMOVED || !is_match;
    }
    pieces->is_match = is_match;
}

static void split_by_pattern(struct lm_text_reading *reading, uint32_t number, uint32_t from,
                             uint32_t to) {
    const struct lm_text_split *what = &reading->tokenizer->splits[number];
    const uint8_t *start = reading->window.bytes, *begin, *end;
    const struct lm_pattern pattern = {reading->tokenizer, what->op, start + to};
    struct pieces pieces = {.reading = reading, .number = number};
    while ((end = lm_pattern_search(&pattern, start + from, &begin)) &&
           reading->count <= reading->out->most) {
        add(&pieces, from, (uint32_t)(begin - start), false);
        add(&pieces, (uint32_t)(begin - start), (uint32_t)(end - start), true);
        from = (uint32_t)(end - start);
    }
    add(&pieces, from, to, false);
    release(&pieces);
}

/* ---- all of them ---- */

/* Writes a prefix over what was read before, at the place of the first char. Returns where the
 * piece begins now. */
static uint32_t put_prefix(struct lm_text_reading *reading, const struct lm_text_split *what,
                           uint32_t from, uint32_t to) {
    struct lm_text_window *window = &reading->window;
    uint32_t bytes = 0, same = 0;
    while (bytes < 3 && what->prefix >> (8 * bytes) & 0xFF) bytes++;
    while (same < bytes && from + same < to &&
           window->bytes[from + same] == (uint8_t)(what->prefix >> (8 * same)))
        same++;
    const bool is_start = reading->is_first && from == LM_TEXT_START;
    if (same == bytes || (window->continues && from == LM_TEXT_START) ||
        (what->first_only && !is_start))
        return from;
    for (uint32_t b = 0; b < bytes; b++)
        window->bytes[from + b - bytes] = (uint8_t)(what->prefix >> (8 * b));
    for (uint32_t b = 0; window->from && b < bytes; b++) {
        window->from[from + b - bytes] = window->from[from];
        window->to[from + b - bytes] = window->to[from];
    }
    return from - bytes;
}

static void split(struct lm_text_reading *reading, uint32_t number, uint32_t from, uint32_t to) {
    const struct lm_text_header *header = reading->tokenizer->header;
    if (from == to) return;
    if (number < header->splits.count) {
        const struct lm_text_split *what = &reading->tokenizer->splits[number];
        if (what->what == LM_TEXT_PREFIX)
            split(reading, number + 1, put_prefix(reading, what, from, to), to);
        else
            split_by_pattern(reading, number, from, to);
        return;
    }
    switch ((enum lm_text_model_kind)header->model) {
    case LM_TEXT_WORDPIECE: lm_text_wordpiece(reading, from, to); break;
    case LM_TEXT_UNIGRAM: lm_text_unigram(reading, from, to); break;
    case LM_TEXT_BPE: lm_text_bpe(reading, from, to); break;
    }
}

void lm_text_split_up(struct lm_text_reading *reading, uint32_t from, uint32_t to) {
    split(reading, 0, from, to);
}
