/* stages.c: see stages.h. */
#include "text/stages.h"

#include "text/clusters.h"
#include "text/utf8.h"
#include "text/window.h"

static void put(struct lm_text_reading *reading, uint32_t stage, struct lm_text_char given);

/* ---- one char to others ---- */

static void put_chars(struct lm_text_reading *reading, uint32_t stage, uint32_t chars,
                      uint32_t from, uint32_t to) {
    const uint32_t *at = reading->tokenizer->chars + chars;
    for (uint32_t c = 1; c <= at[0]; c++)
        put(reading, stage + 1, (struct lm_text_char){at[c], from, to});
}

enum { LEAD = 0x1100, VOWEL = 0x1161, TAIL = 0x11A7, SYLLABLE = 0xAC00 };
enum { LEADS = 19, VOWELS = 21, TAILS = 28, SYLLABLES = LEADS * VOWELS * TAILS };

/* A Hangul syllable taken apart, by Unicode's arithmetic (chapter 3.12). */
static void put_syllable(struct lm_text_reading *reading, uint32_t stage,
                         struct lm_text_char given) {
    const uint32_t at = given.point - SYLLABLE, tail = at % TAILS;
    struct lm_text_char part = given;
    if (at >= SYLLABLES) return;
    part.point = LEAD + at / (VOWELS * TAILS);
    put(reading, stage + 1, part);
    part.point = VOWEL + at % (VOWELS * TAILS) / TAILS;
    put(reading, stage + 1, part);
    part.point = TAIL + tail;
    if (tail) put(reading, stage + 1, part);
}

static void put_map(struct lm_text_reading *reading, uint32_t stage, struct lm_text_char given) {
    const struct lm_tokenizer *tokenizer = reading->tokenizer;
    const uint32_t entry = lm_text_entry(tokenizer, tokenizer->stages[stage].table, given.point);
    const enum lm_text_becoming what = entry & ((1u << LM_TEXT_BECOMING_BITS) - 1);
    switch (what) {
    case LM_TEXT_STAYS: put(reading, stage + 1, given); break;
    case LM_TEXT_GOES: break;
    case LM_TEXT_CHARS:
        put_chars(reading, stage, entry >> LM_TEXT_BECOMING_BITS, given.from, given.to);
        break;
    case LM_TEXT_SYLLABLE: put_syllable(reading, stage, given); break;
    case LM_TEXT_SPACED:
        put(reading, stage + 1, (struct lm_text_char){' ', given.from, given.from});
        put(reading, stage + 1, given);
        put(reading, stage + 1, (struct lm_text_char){' ', given.to, given.to});
        break;
    case LM_TEXT_BECOMINGS: break;
    }
}

/* ---- marks in order, and composed ---- */

static void release(struct lm_text_reading *reading, uint32_t stage) {
    struct lm_text_held *held = &reading->held[stage];
    const uint32_t count = held->count;
    held->count = 0;
    held->has = false;
    for (uint32_t c = 0; c < count; c++) put(reading, stage + 1, held->chars[c]);
}

static uint32_t marks_of(const struct lm_text_reading *reading, uint32_t stage,
                         struct lm_text_char given) {
    const struct lm_tokenizer *tokenizer = reading->tokenizer;
    return lm_text_entry(tokenizer, tokenizer->stages[stage].table, given.point);
}

static void put_order(struct lm_text_reading *reading, uint32_t stage, struct lm_text_char given) {
    struct lm_text_held *held = &reading->held[stage];
    const uint8_t mark = (uint8_t)marks_of(reading, stage, given);
    if (mark == 0 || held->count == LM_TEXT_PENDING_MAX) release(reading, stage);
    if (mark == 0) {
        put(reading, stage + 1, given);
        return;
    }
    uint32_t at = held->count++;
    for (; at > 0 && held->marks[at - 1] > mark; at--) {
        held->chars[at] = held->chars[at - 1];
        held->marks[at] = held->marks[at - 1];
    }
    held->chars[at] = given;
    held->marks[at] = mark;
}

/* The one char that two are together, or 0. */
static uint32_t composed(const struct lm_tokenizer *tokenizer, uint32_t first, uint32_t second) {
    if (first - LEAD < LEADS && second - VOWEL < VOWELS)
        return SYLLABLE + ((first - LEAD) * VOWELS + second - VOWEL) * TAILS;
    if (first - SYLLABLE < SYLLABLES && (first - SYLLABLE) % TAILS == 0 &&
        second - TAIL - 1 < TAILS - 1)
        return first + second - TAIL;
    uint32_t low = 0, high = tokenizer->header->compositions.count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct lm_text_composition *at = &tokenizer->compositions[middle];
        if (at->first == first && at->second == second) return at->composite;
        if (at->first < first || (at->first == first && at->second < second))
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

static void put_compose(struct lm_text_reading *reading, uint32_t stage,
                        struct lm_text_char given) {
    struct lm_text_held *held = &reading->held[stage];
    const uint32_t entry = marks_of(reading, stage, given);
    const uint8_t mark = (uint8_t)entry;
    const bool is_free = held->count == 1 || held->marks[held->count ? held->count - 1 : 0] < mark;
    if (held->has && entry & LM_TEXT_MAY_END && is_free) {
        const uint32_t both = composed(reading->tokenizer, held->chars[0].point, given.point);
        held->chars[0].point = both ? both : held->chars[0].point;
        held->chars[0].to = both ? given.to : held->chars[0].to;
        if (both) return;
    }
    if (mark == 0 || held->count == LM_TEXT_PENDING_MAX) release(reading, stage);
    if (mark != 0 && !held->has) {
        put(reading, stage + 1, given);
        return;
    }
    held->has = true;
    held->marks[held->count] = mark;
    held->chars[held->count++] = given;
}

/* ---- runs and sequences of chars ---- */

static void end_squeeze(struct lm_text_reading *reading, uint32_t stage) {
    const struct lm_text_stage *what = &reading->tokenizer->stages[stage];
    struct lm_text_held *held = &reading->held[stage];
    const uint32_t run = held->count;
    held->count = 0;
    if (run == 0) return;
    if (run >= what->least)
        put_chars(reading, stage, what->to, held->chars[0].from, held->chars[0].to);
    else
        put(reading, stage + 1, held->chars[0]);
}

static void put_squeeze(struct lm_text_reading *reading, uint32_t stage,
                        struct lm_text_char given) {
    const struct lm_tokenizer *tokenizer = reading->tokenizer;
    struct lm_text_held *held = &reading->held[stage];
    if (lm_text_entry(tokenizer, tokenizer->header->classes, given.point) &
        tokenizer->stages[stage].mask) {
        const uint32_t point = held->count == 0 ? given.point : held->chars[0].point;
        held->chars[0] = (struct lm_text_char){point, given.from, given.to}; /* the last's place */
        held->count = held->count < 2 ? held->count + 1 : 2;
        return;
    }
    end_squeeze(reading, stage);
    put(reading, stage + 1, given);
}

static void put_replace(struct lm_text_reading *reading, uint32_t stage,
                        struct lm_text_char given) {
    const struct lm_text_stage *what = &reading->tokenizer->stages[stage];
    const uint32_t *sought = reading->tokenizer->chars + what->from;
    struct lm_text_held *held = &reading->held[stage];
    held->chars[held->count++] = given;
    while (held->count > 0) {
        uint32_t same = 0;
        while (same < held->count && held->chars[same].point == sought[1 + same]) same++;
        if (same == sought[0]) {
            held->count = 0;
            put_chars(reading, stage, what->to, held->chars[0].from, given.to);
            return;
        }
        if (same == held->count) return; /* it may become one */
        const struct lm_text_char first = held->chars[0];
        held->count--;
        for (uint32_t c = 0; c < held->count; c++) held->chars[c] = held->chars[c + 1];
        put(reading, stage + 1, first);
    }
}

static void put_prepend(struct lm_text_reading *reading, uint32_t stage,
                        struct lm_text_char given) {
    struct lm_text_held *held = &reading->held[stage];
    if (!held->has)
        put_chars(reading, stage, reading->tokenizer->stages[stage].to, given.from, given.from);
    held->has = true;
    put(reading, stage + 1, given);
}

/* ---- Precompiled, as the wheel `tokenizers` has it: a grapheme cluster of less than 6 bytes
 * becomes what the first of its beginnings becomes that the map has, all else becomes so char by
 * char. ---- */

enum { CLUSTER_BYTES_MAX = 5 };

static void end_cluster(struct lm_text_reading *reading, uint32_t stage) {
    const struct lm_tokenizer *tokenizer = reading->tokenizer;
    struct lm_text_held *held = &reading->held[stage];
    const uint32_t count = held->count;
    held->count = 0;
    if (count == 0) return;
    struct lm_text_char first = held->chars[0];
    const uint32_t entry = lm_text_entry(tokenizer, tokenizer->stages[stage].table, first.point);
    const uint32_t group = count > 1 && !entry ? lm_cluster_group(tokenizer, held, count) : 0;
    if (count == 1 || entry || group) { /* the rest of the cluster goes with its beginning */
        first.to = held->chars[count - 1].to;
        if (group)
            put_chars(reading, stage, group, first.from, first.to);
        else
            put_map(reading, stage, first);
        return;
    }
    for (uint32_t c = 0; c < count; c++) put_map(reading, stage, held->chars[c]);
}

/* A cluster that grows long: its chars so far, one by one. */
static void spill_cluster(struct lm_text_reading *reading, uint32_t stage) {
    struct lm_text_held *held = &reading->held[stage];
    const uint32_t count = held->count;
    held->count = 0;
    held->has = true;
    for (uint32_t c = 0; c < count; c++) put_map(reading, stage, held->chars[c]);
}

static void put_clusters(struct lm_text_reading *reading, uint32_t stage,
                         struct lm_text_char given) {
    const struct lm_tokenizer *tokenizer = reading->tokenizer;
    struct lm_text_held *held = &reading->held[stage];
    const uint32_t entry = lm_text_entry(tokenizer, tokenizer->stages[stage].classes, given.point);
    const bool goes_on = (held->count > 0 || held->has) && lm_cluster_joins(held, entry);
    if (!goes_on) {
        end_cluster(reading, stage);
        held->bytes = 0;
        held->has = false;
    }
    lm_cluster_look(held, entry);
    held->bytes += lm_utf8_length(given.point);
    if (held->bytes > CLUSTER_BYTES_MAX && (held->count > 0 || goes_on)) {
        if (!held->has) spill_cluster(reading, stage);
        held->bytes = CLUSTER_BYTES_MAX + 1;
        put_map(reading, stage, given);
        return;
    }
    held->chars[held->count++] = given;
}

/* ---- all of them ---- */

static void put(struct lm_text_reading *reading, uint32_t stage, struct lm_text_char given) {
    if (stage == reading->tokenizer->header->stages.count) {
        lm_text_window_put(reading, given);
        return;
    }
    switch ((enum lm_text_stage_kind)reading->tokenizer->stages[stage].what) {
    case LM_TEXT_MAP: put_map(reading, stage, given); break;
    case LM_TEXT_ORDER: put_order(reading, stage, given); break;
    case LM_TEXT_COMPOSE: put_compose(reading, stage, given); break;
    case LM_TEXT_CLUSTERS: put_clusters(reading, stage, given); break;
    case LM_TEXT_SQUEEZE: put_squeeze(reading, stage, given); break;
    case LM_TEXT_REPLACE: put_replace(reading, stage, given); break;
    case LM_TEXT_PREPEND: put_prepend(reading, stage, given); break;
    case LM_TEXT_STAGE_KINDS: break;
    }
}

void lm_text_stages_begin(struct lm_text_reading *reading) {
    for (uint32_t s = 0; s < reading->tokenizer->header->stages.count; s++) {
        struct lm_text_held *held = &reading->held[s];
        held->count = held->bytes = held->before = held->picture = 0;
        held->has = held->consonant = held->linked = false;
    }
    reading->window.used = LM_TEXT_START;
    reading->window.continues = false;
}

void lm_text_stages_put(struct lm_text_reading *reading, struct lm_text_char given) {
    put(reading, 0, given);
}

void lm_text_stages_end(struct lm_text_reading *reading) {
    for (uint32_t s = 0; s < reading->tokenizer->header->stages.count; s++) {
        switch ((enum lm_text_stage_kind)reading->tokenizer->stages[s].what) {
        case LM_TEXT_ORDER:
        case LM_TEXT_COMPOSE:
        case LM_TEXT_REPLACE: release(reading, s); break;
        case LM_TEXT_CLUSTERS: end_cluster(reading, s); break;
        case LM_TEXT_SQUEEZE: end_squeeze(reading, s); break;
        case LM_TEXT_MAP:
        case LM_TEXT_PREPEND:
        case LM_TEXT_STAGE_KINDS: break;
        }
    }
    lm_text_window_end(reading);
}
