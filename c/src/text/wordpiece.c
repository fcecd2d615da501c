/* wordpiece.c: see wordpiece.h. */
#include "text/wordpiece.h"

#include <string.h>

#include "text/utf8.h"

/* The longest piece that a word has at `at`: where it ends, or 0. */
static uint32_t longest(const struct lm_tokenizer *tokenizer, const uint8_t *word, uint32_t bytes,
                        uint32_t at, uint32_t *id_out) {
    uint32_t node = at == 0 ? tokenizer->header->root : tokenizer->header->rest, end = 0;
    for (uint32_t b = at; b < bytes; b++) {
        node = lm_text_child_of(tokenizer, node, word[b]);
        if (!node) break;
        if (!tokenizer->values[node]) continue;
        *id_out = tokenizer->values[node] - 1;
        end = b + 1;
    }
    return end;
}

/* Cuts a word, which lies at `base` of the window, or nowhere in it. */
static void cut(struct lm_text_reading *reading, const uint8_t *word, uint32_t bytes,
                uint32_t chars, uint32_t base) {
    const struct lm_text_header *header = reading->tokenizer->header;
    const uint32_t before = reading->count;
    uint32_t at = chars > header->word_chars_max ? UINT32_MAX : 0, id = 0;
    while (at < bytes) {
        const uint32_t end = longest(reading->tokenizer, word, bytes, at, &id);
        if (end) lm_text_push_bytes(reading, id, base + at, base + end);
        at = end ? end : UINT32_MAX;
    }
    if (at == UINT32_MAX) { /* too long, or a part of it is no piece */
        reading->count = before;
        lm_text_push_bytes(reading, header->unknown, base, base + bytes);
    }
}

void lm_text_wordpiece(struct lm_text_reading *reading, uint32_t from, uint32_t to) {
    const uint8_t *word = reading->window.bytes + from;
    cut(reading, word, to - from, lm_utf8_count(word, to - from), from);
}

/* ---- the direct way ---- */

void lm_text_direct_end(struct lm_text_reading *reading) {
    struct lm_text_word *word = &reading->word;
    if (word->chars > 0) cut(reading, word->bytes, word->used, word->chars, 0);
    word->used = word->chars = word->marks = 0;
}

/* ---- chars to words ---- */

/* Makes room for a mark among the marks at the end of the word, and returns its place. */
static uint32_t place_of_mark(struct lm_text_word *word, uint32_t bytes, uint8_t mark_class) {
    uint32_t m = word->marks, at;
    while (m > 0 && word->mark_class[m - 1] > mark_class) m--;
    at = m < word->marks ? word->mark_at[m] : word->used;
    memmove(word->bytes + at + bytes, word->bytes + at, word->used - at);
    for (uint32_t later = word->marks; later > m; later--) {
        word->mark_at[later] = (uint16_t)(word->mark_at[later - 1] + bytes);
        word->mark_class[later] = word->mark_class[later - 1];
    }
    word->mark_at[m] = (uint16_t)at;
    word->mark_class[m] = mark_class;
    word->marks++;
    return at;
}

static void add_char(struct lm_text_reading *reading, const uint8_t *bytes, uint32_t count,
                     uint8_t mark_class) {
    struct lm_text_word *word = &reading->word;
    if (word->chars++ >= reading->tokenizer->header->word_chars_max) return; /* it is unknown */
    uint32_t at = word->used;
    if (mark_class)
        at = place_of_mark(word, count, mark_class);
    else
        word->marks = 0;
    for (uint32_t b = 0; b < count; b++) word->bytes[at + b] = bytes[b];
    word->used += count;
}

static void take(struct lm_text_reading *reading, enum lm_text_action action, const uint8_t *bytes,
                 uint32_t count, uint8_t mark_class) {
    switch (action) {
    case LM_TEXT_WORD: add_char(reading, bytes, count, 0); break;
    case LM_TEXT_MARK: add_char(reading, bytes, count, mark_class); break;
    case LM_TEXT_BLANK: lm_text_direct_end(reading); break;
    case LM_TEXT_ALONE:
        lm_text_direct_end(reading);
        add_char(reading, bytes, count, 0);
        lm_text_direct_end(reading);
        break;
    case LM_TEXT_DROPPED:
        if (mark_class) reading->word.marks = 0;
        break;
    case LM_TEXT_SEQUENCE: break; /* its chars are taken one by one */
    }
}

static void take_sequence(struct lm_text_reading *reading, const uint8_t *at) {
    for (uint32_t chars = *at++; chars > 0; chars--) {
        take(reading, at[0], at + 3, at[2], at[1]);
        at += 3 + at[2];
    }
}

const uint8_t *lm_text_direct(struct lm_text_reading *reading, const uint8_t *at,
                              const uint8_t *end) {
    const struct lm_tokenizer *tokenizer = reading->tokenizer;
    const uint32_t *first_bytes = tokenizer->header->first_bytes[0];
    const uint32_t table = tokenizer->header->direct, most = reading->out->most;
    const uint32_t *ascii =
        tokenizer->blocks + (size_t)tokenizer->tables[table * LM_TEXT_BLOCKS] * LM_TEXT_BLOCK;
    do {
        uint32_t bytes, point = lm_utf8_at(at, end, &bytes);
        if (!bytes) return NULL;
        const uint32_t found = point < 0x80 ? ascii[point] : lm_text_entry(tokenizer, table, point);
        const enum lm_text_action action = found & ((1u << LM_TEXT_ACTION_BITS) - 1);
        const uint32_t own = found >> LM_TEXT_ACTION_BITS;
        if (action == LM_TEXT_SEQUENCE)
            take_sequence(reading, tokenizer->pool + own);
        else
            take(reading, action, at, bytes, (uint8_t)own);
        at += bytes;
    } while (at < end && !(first_bytes[*at / 32] >> (*at % 32) & 1) && reading->count <= most);
    return at;
}
