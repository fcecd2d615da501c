/* encode.c: see encode.h. */
#include "text/encode.h"

#include <string.h>

#include "text/pieces.h"

/* How many tokens of each text stay where both have to fit: the shorter one keeps its own up to a
 * half; of two long ones the longer keeps the odd token. */
static void share(uint32_t most, uint32_t *first, uint32_t *second) {
    uint32_t *shorter = *first > *second ? second : first;
    uint32_t *longer = *first > *second ? first : second;
    if ((uint64_t)*first + *second <= most) return;
    if (*shorter > most - *shorter || *shorter > most) {
        *shorter = most / 2;
        *longer = most - most / 2;
    } else {
        *longer = most - *shorter;
    }
}

/* The special tokens of a template. */
static uint32_t count_special(const struct lm_text_item *items, uint32_t count) {
    uint32_t special = 0;
    for (uint32_t i = 0; i < count; i++) special += items[i].what == LM_TEXT_SPECIAL;
    return special;
}

/* Puts the places of some tokens; the text's own lie behind room for all special tokens. */
static void put_places(const struct lm_text_room *room, uint32_t what, uint32_t special,
                       uint32_t at, uint32_t tokens) {
    if (what == LM_TEXT_SPECIAL)
        room->places[at] = (struct lm_text_place){LM_TEXT_NO_ID, LM_TEXT_NO_ID};
    else
        memmove(room->places + at, room->places + special, tokens * sizeof *room->places);
}

/* Puts the special tokens and the texts in the order of a template. */
static uint32_t lay_out(const struct lm_text_item *items, uint32_t count, const int64_t *first,
                        uint32_t firsts, uint32_t seconds, const struct lm_text_room *room) {
    const uint32_t special = count_special(items, count);
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t what = items[i].what;
        uint32_t tokens = what == LM_TEXT_SPECIAL ? 1 : what == LM_TEXT_FIRST ? firsts : seconds;
        if (what == LM_TEXT_SPECIAL)
            room->ids[at] = items[i].id;
        else
            memmove(room->ids + at, what == LM_TEXT_FIRST ? first : room->rest,
                    tokens * sizeof *room->ids);
        if (room->places) put_places(room, what, special, at, tokens);
        for (uint32_t t = 0; t < tokens; t++) room->types[at + t] = items[i].type;
        at += tokens;
    }
    return at;
}

/* Reads a text again, where only its last `kept` tokens stay. */
static void keep_last(const struct lm_tokenizer *tokenizer, struct lm_text text,
                      struct lm_text_out *out, uint32_t found, uint32_t kept) {
    if (found <= kept) return;
    out->skipped = found - kept;
    out->most = LM_TEXT_COUNT_MAX;
    (void)lm_text_pieces(tokenizer, text.at, text.bytes, out);
}

uint32_t lm_text_encode(const struct lm_tokenizer *tokenizer, struct lm_text first,
                        struct lm_text second, uint32_t tokens_max, enum lm_text_cut cut,
                        const struct lm_text_room *room) {
    const struct lm_text_header *header = tokenizer->header;
    const struct lm_text_item *items = second.at ? tokenizer->pair : tokenizer->single;
    const uint32_t count = second.at ? header->pair.count : header->single.count;
    const uint32_t special = count_special(items, count);
    if (tokens_max > room->capacity) tokens_max = room->capacity;
    if (tokens_max <= special) return LM_TEXT_TOO_SMALL;
    const uint32_t most = tokens_max - special;
    const bool counts_all = second.at || cut == LM_TEXT_CUT_START;
    /* The first text is written behind room for all special tokens, and later moves to the front.
     */
    int64_t *place = room->ids + special;
    struct lm_text_out out = {.ids = place,
                              .capacity = most,
                              .places = room->places ? room->places + special : NULL,
                              .most = counts_all ? LM_TEXT_COUNT_MAX : most,
                              .scratch = room->scratch};
    struct lm_text_out rest = out;
    rest.ids = room->rest;
    uint32_t firsts = lm_text_pieces(tokenizer, first.at, first.bytes, &out);
    uint32_t seconds = second.at ? lm_text_pieces(tokenizer, second.at, second.bytes, &rest) : 0;
    if (firsts == LM_TEXT_NO_UTF8 || seconds == LM_TEXT_NO_UTF8) return LM_TEXT_NO_UTF8;
    if ((uint64_t)firsts + seconds > most && cut == LM_TEXT_CUT_NOTHING) return LM_TEXT_TOO_LONG;
    const uint32_t all_firsts = firsts, all_seconds = seconds;
    share(most, &firsts, &seconds);
    if (cut == LM_TEXT_CUT_START) {
        keep_last(tokenizer, first, &out, all_firsts, firsts);
        keep_last(tokenizer, second, &rest, all_seconds, seconds);
    }
    return lay_out(items, count, place, firsts, seconds, room);
}
