/* added.c: see added.h. */
#include "text/added.h"

#include "text/utf8.h"

uint32_t lm_text_find_added(const struct lm_tokenizer *tokenizer, uint32_t set, const uint8_t *at,
                            const uint8_t *end, struct lm_text_added *found_out) {
    const struct lm_text_header *header = tokenizer->header;
    if (!(header->first_bytes[set][*at / 32] >> (*at % 32) & 1)) return 0;
    uint32_t node = set ? header->normalised : header->added, bytes = 0;
    for (const uint8_t *b = at; b < end; b++) {
        node = lm_text_child_of(tokenizer, node, *b);
        if (!node) break;
        const uint32_t place = tokenizer->values[node];
        if (!place || place > header->tokens.count) continue;
        *found_out = tokenizer->tokens[place - 1];
        bytes = (uint32_t)(b + 1 - at);
    }
    return bytes;
}

static bool is_of(const struct lm_tokenizer *tokenizer, uint32_t mask, const uint8_t *at,
                  const uint8_t *end, uint32_t *bytes_out) {
    const uint32_t point = lm_utf8_at(at, end, bytes_out);
    return *bytes_out && lm_text_entry(tokenizer, tokenizer->header->classes, point) & mask;
}

static const uint8_t *char_before(const uint8_t *start, const uint8_t *at) {
    do at--;
    while (at > start && (*at & 0xC0) == 0x80);
    return at;
}

bool lm_text_hides(const struct lm_tokenizer *tokenizer, const uint8_t *start, const uint8_t *at,
                   uint32_t bytes, const uint8_t *end) {
    uint32_t length;
    const uint8_t *behind = at + bytes;
    if (behind < end && is_of(tokenizer, LM_TEXT_IS_WORD, behind, end, &length)) return true;
    return at > start && is_of(tokenizer, LM_TEXT_IS_WORD, char_before(start, at), at, &length);
}

bool lm_text_follows_blank(const struct lm_tokenizer *tokenizer, const uint8_t *start,
                           const uint8_t *at) {
    uint32_t bytes;
    return at > start && is_of(tokenizer, LM_TEXT_IS_BLANK, char_before(start, at), at, &bytes);
}

uint32_t lm_text_blanks(const struct lm_tokenizer *tokenizer, const uint8_t *at,
                        const uint8_t *end) {
    uint32_t blanks = 0, bytes;
    while (at + blanks < end && is_of(tokenizer, LM_TEXT_IS_BLANK, at + blanks, end, &bytes))
        blanks += bytes;
    return blanks;
}

uint32_t lm_text_blanks_before(const struct lm_tokenizer *tokenizer, const uint8_t *start,
                               const uint8_t *at) {
    const uint8_t *first = at;
    while (lm_text_follows_blank(tokenizer, start, first)) first = char_before(start, first);
    return (uint32_t)(at - first);
}
