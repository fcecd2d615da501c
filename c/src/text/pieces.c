/* pieces.c: see pieces.h. */
#include "text/pieces.h"

#include <stdbool.h>
#include <string.h>

#include "text/utf8.h"

enum { CHAR_BYTES_MAX = 4 };

/* A word so far, normalised, and the combining marks at its end, which are kept in the order of
 * their classes (Unicode's canonical ordering). */
struct word {
    uint8_t bytes[LM_TEXT_WORD_CHARS * CHAR_BYTES_MAX];
    uint32_t used, chars, marks;
    uint16_t mark_at[LM_TEXT_WORD_CHARS];
    uint8_t mark_class[LM_TEXT_WORD_CHARS];
};

struct reading {
    const struct lm_tokenizer *tokenizer;
    int64_t *ids;
    uint32_t capacity; /* of `ids`: later tokens are counted and not written */
    uint32_t count;
    struct word word;
};

static void push(struct reading *reading, uint32_t id) {
    if (reading->count < reading->capacity) reading->ids[reading->count] = id;
    reading->count++;
}

/* ---- a word to pieces ---- */

/* The longest piece that the word has at `at`: where it ends, or 0. */
static uint32_t longest(const struct lm_tokenizer *tokenizer, const struct word *word, uint32_t at,
                        uint32_t *id_out) {
    uint32_t node = at == 0 ? tokenizer->header->root : tokenizer->header->rest, end = 0;
    for (uint32_t b = at; b < word->used; b++) {
        node = lm_text_child_of(tokenizer, node, word->bytes[b]);
        if (!node) break;
        if (!tokenizer->values[node]) continue;
        *id_out = tokenizer->values[node] - 1;
        end = b + 1;
    }
    return end;
}

static void end_word(struct reading *reading) {
    struct word *word = &reading->word;
    const struct lm_text_header *header = reading->tokenizer->header;
    if (word->chars == 0) return;
    const uint32_t before = reading->count;
    uint32_t at = word->chars > header->word_chars_max ? UINT32_MAX : 0, id = 0;
    while (at < word->used) {
        uint32_t end = longest(reading->tokenizer, word, at, &id);
        if (end) push(reading, id);
        at = end ? end : UINT32_MAX;
    }
    if (at == UINT32_MAX) { /* too long, or a part of it is no piece */
        reading->count = before;
        push(reading, header->unknown);
    }
    word->used = word->chars = word->marks = 0;
}

/* ---- chars to words ---- */

/* Makes room for a mark among the marks at the end of the word, and returns its place. */
static uint32_t place_of_mark(struct word *word, uint32_t bytes, uint8_t mark_class) {
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

static void add_char(struct reading *reading, const uint8_t *bytes, uint32_t count,
                     uint8_t mark_class) {
    struct word *word = &reading->word;
    if (word->chars++ >= reading->tokenizer->header->word_chars_max) return; /* it is unknown */
    uint32_t at = word->used;
    if (mark_class)
        at = place_of_mark(word, count, mark_class);
    else
        word->marks = 0;
    for (uint32_t b = 0; b < count; b++) word->bytes[at + b] = bytes[b];
    word->used += count;
}

static void take(struct reading *reading, enum lm_text_action action, const uint8_t *bytes,
                 uint32_t count, uint8_t mark_class) {
    switch (action) {
    case LM_TEXT_WORD: add_char(reading, bytes, count, 0); break;
    case LM_TEXT_MARK: add_char(reading, bytes, count, mark_class); break;
    case LM_TEXT_BLANK: end_word(reading); break;
    case LM_TEXT_ALONE:
        end_word(reading);
        add_char(reading, bytes, count, 0);
        end_word(reading);
        break;
    case LM_TEXT_DROPPED:
        if (mark_class) reading->word.marks = 0;
        break;
    case LM_TEXT_SEQUENCE: break; /* its chars are taken one by one */
    }
}

static void take_sequence(struct reading *reading, const uint8_t *at) {
    for (uint32_t chars = *at++; chars > 0; chars--) {
        take(reading, at[0], at + 3, at[2], at[1]);
        at += 3 + at[2];
    }
}

/* ---- a text ---- */

/* The longest added token that begins here: its bytes, or 0. */
static uint32_t added_token(const struct lm_tokenizer *tokenizer, const uint8_t *at,
                            const uint8_t *end, uint32_t *id_out) {
    const struct lm_text_header *header = tokenizer->header;
    if (!(header->first_bytes[*at / 32] >> (*at % 32) & 1)) return 0;
    uint32_t node = header->added, bytes = 0;
    for (const uint8_t *b = at; b < end; b++) {
        node = lm_text_child_of(tokenizer, node, *b);
        if (!node) break;
        if (!tokenizer->values[node]) continue;
        *id_out = tokenizer->values[node] - 1;
        bytes = (uint32_t)(b + 1 - at);
    }
    return bytes;
}

uint32_t lm_text_pieces(const struct lm_tokenizer *tokenizer, const char *text, size_t text_bytes,
                        int64_t *ids, uint32_t capacity, uint32_t most) {
    struct reading reading = {.tokenizer = tokenizer, .ids = ids, .capacity = capacity};
    const uint8_t *at = (const uint8_t *)text, *end = at + text_bytes;
    reading.word.used = reading.word.chars = reading.word.marks = 0;
    while (at < end && reading.count <= most) {
        uint32_t id, bytes = added_token(tokenizer, at, end, &id);
        if (bytes) {
            end_word(&reading);
            push(&reading, id);
            at += bytes;
            continue;
        }
        uint32_t point = lm_utf8_at(at, end, &bytes);
        if (!bytes) return LM_TEXT_NO_UTF8;
        uint32_t found =
            tokenizer->actions[tokenizer->blocks[point / LM_TEXT_BLOCK] * LM_TEXT_BLOCK +
                               point % LM_TEXT_BLOCK];
        enum lm_text_action action = found & ((1u << LM_TEXT_ACTION_BITS) - 1);
        uint32_t own = found >> LM_TEXT_ACTION_BITS;
        if (action == LM_TEXT_SEQUENCE)
            take_sequence(&reading, tokenizer->pool + own);
        else
            take(&reading, action, at, bytes, (uint8_t)own);
        at += bytes;
    }
    end_word(&reading);
    return reading.count;
}
