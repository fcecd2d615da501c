/* test_text.c: tokenizers' files and texts: what is no UTF-8, marks and their order, lengths, and a
 * file with any byte changed, which is refused or harmless. That ids are those of the wheel
 * `tokenizers` is tested from Python (tests/test_text_tokenizer.py).
 */
#include "check.h"
#include "lumen.h"
#include "text/decode.h"
#include "text/encode.h"
#include "text/pieces.h"
#include "text/utf8.h"
#include "tiny_tokenizer.h"

/* ---- texts ---- */

static int64_t ids[64], types[64], rest[64];
static uint64_t scratch[1 << 16];

static struct lm_text_out out_of(void) {
    return (struct lm_text_out){.ids = ids, .capacity = 64, .most = 64, .scratch = scratch};
}

static void has(const struct lm_tokenizer *tokenizer, const char *first, const char *second,
                const char *expected) {
    const struct lm_text_room room = {ids, types, rest, 64, scratch, NULL};
    char said[256] = "";
    uint32_t count = lm_text_encode(tokenizer, (struct lm_text){first, strlen(first)},
                                    (struct lm_text){second, second ? strlen(second) : 0}, 12,
                                    LM_TEXT_CUT_END, &room);
    for (uint32_t t = 0; t < count && count < 64; t++)
        snprintf(said + strlen(said), sizeof said - strlen(said), "%lld ", (long long)ids[t]);
    CHECK_AT("'%.40s' and '%.40s': %.60s", first, second ? second : "", said);
    CHECK(strcmp(said, expected) == 0);
}

static void texts(const struct lm_tokenizer *tokenizer) {
    has(tokenizer, "", NULL, "1 2 ");
    has(tokenizer, "ab a b", NULL, "1 3 4 3 0 2 ");
    has(tokenizer, "a!ab!", NULL, "1 3 5 3 4 5 2 ");
    has(tokenizer, "aDb", NULL, "1 3 4 2 ");
    has(tokenizer, "S", NULL, "1 3 5 0 2 ");
    has(tokenizer, "abbb abbbb", NULL, "1 3 4 4 4 0 2 "); /* four chars, and five */
    has(tokenizer, "NM MN", NULL, "1 6 6 2 ");
    has(tokenizer, "NDM", NULL, "1 0 2 "); /* no order across what went */
    has(tokenizer, "a[E]b[E", NULL, "1 3 2 0 2 ");
    has(tokenizer, "a a a a a a a a a a a", NULL, "1 3 3 3 3 3 3 3 3 3 3 2 ");
    has(tokenizer, "a", "ab", "1 3 2 3 4 2 ");
    has(tokenizer, "a a a a a a a", "! ! ! ! ! ! ! !", "1 3 3 3 3 2 5 5 5 5 5 2 ");
    has(tokenizer, "a a a a a a a a", "! ! ! ! ! ! !", "1 3 3 3 3 3 2 5 5 5 5 2 ");
    has(tokenizer, "a a", "! ! ! ! ! ! ! ! !", "1 3 3 2 5 5 5 5 5 5 5 2 ");
    CHECK(types[3] == 0 && types[4] == 1 && types[11] == 1);
    has(tokenizer, "a a a a a a a a", "! ! ! ! ! ! ! !", "1 3 3 3 3 2 5 5 5 5 5 2 ");
}

static void refused(const struct lm_tokenizer *tokenizer) {
    static const char *const none[] = {"\x80",         "a\xC3",        "\xC0\x80",
                                       "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                       "\xFF",         "\xF0\x9F\x98"};
    const struct lm_text_room room = {ids, types, rest, 64, scratch, NULL};
    const struct lm_text_out out = out_of();
    for (size_t t = 0; t < sizeof none / sizeof *none; t++) {
        CHECK_AT("text %zu", t);
        CHECK(lm_text_pieces(tokenizer, none[t], strlen(none[t]), &out) == LM_TEXT_NO_UTF8);
    }
    const struct lm_text two = {"a a", 3}, no = {0};
    CHECK(lm_text_encode(tokenizer, two, no, 4, LM_TEXT_CUT_NOTHING, &room) == 4);
    CHECK(lm_text_encode(tokenizer, two, no, 3, LM_TEXT_CUT_NOTHING, &room) == LM_TEXT_TOO_LONG);
    CHECK(lm_text_encode(tokenizer, two, no, 3, LM_TEXT_CUT_END, &room) == 3);
    CHECK(lm_text_encode(tokenizer, two, no, 2, LM_TEXT_CUT_END, &room) == LM_TEXT_TOO_SMALL);
    CHECK(lm_text_encode(tokenizer, two, two, 3, LM_TEXT_CUT_END, &room) == LM_TEXT_TOO_SMALL);
    static const uint8_t last[] = {0xF4, 0x8F, 0xBF, 0xBF};
    uint32_t bytes;
    CHECK(lm_utf8_at(last, last + 4, &bytes) == 0x10FFFF && bytes == 4);
    CHECK(lm_utf8_at(last, last + 3, &bytes) == 0 && bytes == 0);
}

/* Unigram and BPE behind all stages: what each char and token is, by hand. */
static void wholes(struct tiny *tiny) {
    struct lm_tokenizer tokenizer;
    make_whole(tiny, LM_TEXT_UNIGRAM, LM_TEXT_FUSES_UNKNOWN);
    CHECK(lm_tokenizer_open(&tokenizer, tiny, sizeof *tiny) == 0);
    CHECK(lm_text_scratch_bytes(&tokenizer, true) <= sizeof scratch);
    has(&tokenizer, "", NULL, "1 2 ");
    has(&tokenizer, "a", NULL, "1 10 2 ");
    has(&tokenizer, "ab abb", NULL, "1 10 7 10 9 2 ");
    has(&tokenizer, "aDb", NULL, "1 10 7 2 ");
    has(&tokenizer, "xx", NULL, "1 0 2 ");
    has(&tokenizer, "a [E]a", NULL, "1 10 2 10 2 ");
    has(&tokenizer, "a [F] a", NULL, "1 10 2 10 2 ");
    has(&tokenizer, "a[F]a", NULL, "1 10 0 3 2 ");
    make_whole(tiny, LM_TEXT_BPE, LM_TEXT_BYTE_LEVEL);
    CHECK(lm_tokenizer_open(&tokenizer, tiny, sizeof *tiny) == 0);
    CHECK(lm_text_scratch_bytes(&tokenizer, true) <= sizeof scratch);
    has(&tokenizer, "abb ab ba", NULL, "1 3 9 8 7 3 2 ");
    has(&tokenizer, "aN", NULL, "1 7 2 ");
}

static void read_with_places(const struct lm_tokenizer *tokenizer, const char *text, size_t bytes) {
    struct lm_text_place places[64];
    struct lm_text_out out = out_of();
    const uint32_t vocabulary = tokenizer->header->vocabulary;
    out.places = places;
    if (lm_text_scratch_bytes(tokenizer, true) > sizeof scratch) return;
    const uint32_t count = lm_text_pieces(tokenizer, text, bytes, &out);
    CHECK(count != LM_TEXT_NO_UTF8);
    for (uint32_t t = 0; t < count && t < 64; t++) {
        CHECK(ids[t] >= 0 && ids[t] < (int64_t)vocabulary);
        CHECK(places[t].from <= bytes && places[t].to <= bytes);
    }
}

/* ---- tokens ---- */

/* The text of some tokens, in memory that the caller frees; its bytes are those that were counted
 * before. */
static char *text_of(const struct lm_tokenizer *tokenizer, const uint32_t *tokens, size_t count,
                     bool skips, size_t *bytes_out) {
    struct lm_text_decoding counted = {.tokenizer = tokenizer, .skips_special = skips};
    for (size_t t = 0; t < count; t++) lm_text_decode(&counted, tokens[t]);
    lm_text_decode_end(&counted);
    char *text = malloc(counted.bytes + 1);
    struct lm_text_decoding written = {.tokenizer = tokenizer, .skips_special = skips, .out = text};
    for (size_t t = 0; t < count; t++) lm_text_decode(&written, tokens[t]);
    lm_text_decode_end(&written);
    CHECK(written.bytes == counted.bytes);
    text[written.bytes] = '\0';
    *bytes_out = written.bytes;
    return text;
}

/* A tokenizer whose tokens have these names, one a char of each, until '|'. */
static void is_text(enum lm_text_decoder decoder, uint32_t flags, const char *names,
                    const char *expected) {
    static uint8_t all[256];
    static uint32_t ends[16];
    static const uint32_t special[1] = {2};
    struct lm_text_header header = {.decoder = decoder, .flags = flags};
    struct lm_tokenizer tokenizer = {
        .header = &header, .names = all, .name_ends = ends, .special = special};
    uint32_t tokens[16], count = 0, used = 0;
    header.mark = decoder == LM_TEXT_FROM_WORDPIECE ? '#' | '#' << 8 : 0x8196E2; /* U+2581 */
    for (const char *at = names; *at; at++) {
        if (*at != '|') {
            all[used++] = (uint8_t)*at;
            continue;
        }
        ends[count] = used;
        tokens[count] = count;
        count++;
    }
    size_t bytes;
    char *text = text_of(&tokenizer, tokens, count, true, &bytes);
    CHECK_AT("%s: '%s'", names, text);
    CHECK(strcmp(text, expected) == 0);
    free(text);
}

static void tokens(void) {
    const enum lm_text_decoder words = LM_TEXT_FROM_WORDPIECE, bytes = LM_TEXT_FROM_BYTE_LEVEL,
                               marks = LM_TEXT_FROM_METASPACE, parts = LM_TEXT_FROM_PARTS;
    const uint32_t joins = LM_TEXT_JOINS_BYTES, keeps = LM_TEXT_KEEPS_FIRST;
    is_text(LM_TEXT_JOINED, 0, "a|special||b|", "a b");
    is_text(words, 0, "##a|special|##b|c|##|.|", "##ab c .");
    is_text(words, LM_TEXT_CLEANS, "a|special|.|n't|'s|'x|", "a.n't's 'x");
    is_text(bytes, 0, "\xC4\xA0|special|\xC3\xA9|\xC3\xA9|", " \xEF\xBF\xBD\xEF\xBF\xBD");
    is_text(bytes, 0, "\xC3\x83|special|\xC2\xA9|x|", "\xC3\xA9x");
    is_text(bytes, 0, "\xE2\x96\x81|special| a|", "\xE2\x96\x81 a"); /* no char of a byte */
    /* E0 80 80: three that begin nothing; F0 9F: one that ends too early, also at the end. */
    is_text(bytes, 0, "\xC3\xA0|special|\xC4\xA2|\xC4\xA2|",
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    is_text(bytes, 0, "\xC3\xB0|special|\xC5\x81|a|\xC3\xB0|\xC5\x81|",
            "\xEF\xBF\xBD"
            "a\xEF\xBF\xBD");
    is_text(marks, 0,
            "\xE2\x96\x81"
            "a\xE2\x96\x81|special|\xE2\x96\x81"
            "b|",
            "a b");
    is_text(marks, keeps,
            "\xE2\x96\x81"
            "a|special|\xE2\x96\x81"
            "b|",
            " a b");
    is_text(parts, 0, "\xE2\x96\x81\xE2\x96\x81|special|a|", " a");
    is_text(parts, joins, "<0x20>|special|<0xE2>|<0x96>|<0x81>|b|",
            "\xE2\x96\x81"
            "b");
    is_text(parts, joins | keeps, "<0x20>|special|<0xe2>|b|<0xG0>|",
            "\xEF\xBF\xBD\xEF\xBF\xBD"
            "b<0xG0>");
    is_text(parts, joins, "<0x20>|special|<0x80>|", "\xEF\xBF\xBD\xEF\xBF\xBD");
    is_text(parts, 0, "<0x20>|special|b|", "<0x20>b");
    is_text(LM_TEXT_NO_DECODER, 0, "a|special|", "");
}

/* Each number that leads somewhere, one beyond what is there. */
static void beyond(struct tiny *tiny) {
    const struct {
        const char *name;
        uint32_t *at, value;
    } numbers[] = {
        {"root", &tiny->header.root, NODES},
        {"rest", &tiny->header.rest, NODES},
        {"added", &tiny->header.added, NODES},
        {"normalised", &tiny->header.normalised, NODES},
        {"child", &tiny->children[0].child, NODES},
        {"value", &tiny->values[NODES - 1], VOCABULARY + 1},
        {"unknown", &tiny->header.unknown, VOCABULARY},
        {"added token", &tiny->tokens[1].id, VOCABULARY},
        {"special token", &tiny->pair[4].id, VOCABULARY},
        {"item", &tiny->single[2].what, LM_TEXT_SECOND + 1},
        {"name", &tiny->name_ends[VOCABULARY - 1], NAME_BYTES + 1},
        {"decoder", &tiny->header.decoder, LM_TEXT_DECODERS},
        {"classes", &tiny->header.classes, TABLES},
        {"direct", &tiny->header.direct, TABLES},
        {"model", &tiny->header.model, LM_TEXT_BPE + 1},
        {"word", &tiny->header.word_chars_max, LM_TEXT_WORD_CHARS + 1},
        {"window", &tiny->header.window, LM_TEXT_WINDOW_MAX + 1},
    };
    struct lm_tokenizer tokenizer;
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        const uint32_t right = *numbers[n].at;
        CHECK_AT("%s", numbers[n].name);
        *numbers[n].at = numbers[n].value;
        CHECK(lm_tokenizer_open(&tokenizer, tiny, sizeof *tiny) == LUMEN_E_INVALID);
        *numbers[n].at = right;
        CHECK(lm_tokenizer_open(&tokenizer, tiny, sizeof *tiny) == 0);
    }
}

/* Every file that opens has ids of its vocabulary alone, and is read within its bounds. */
static void damaged(const struct tiny *whole, uint64_t *random) {
    const char text[] = "ab S!NDM [E]  [F] \xC3\xA9 aaaaa YPJJC LC``a!!";
    struct tiny *copy = malloc(sizeof *copy);
    uint32_t opened = 0;
    for (int round = 0; round < 3000; round++) {
        struct lm_tokenizer tokenizer;
        memcpy(copy, whole, sizeof *copy);
        /* Most of the file is its tables. */
        uint32_t at = check_below(random, sizeof *copy);
        if (round % 4 == 1) at = check_below(random, sizeof copy->header);
        if (round % 2 == 0)
            at = (uint32_t)(offsetof(struct tiny, pool) +
                            check_below(random, sizeof *copy - offsetof(struct tiny, pool)));
        ((uint8_t *)copy)[at] ^= (uint8_t)(1u << check_below(random, 8));
        if (lm_tokenizer_open(&tokenizer, copy, sizeof *copy)) continue;
        opened++;
        CHECK_AT("byte %u", at);
        read_with_places(&tokenizer, text, sizeof text - 1);
        const struct lm_text_out out = out_of();
        size_t bytes;
        uint32_t some[8];
        for (int t = 0; t < 8; t++) some[t] = check_below(random, tokenizer.header->vocabulary);
        free(text_of(&tokenizer, some, 8, false, &bytes));
        if (lm_text_scratch_bytes(&tokenizer, false) <= sizeof scratch)
            CHECK(lm_text_pieces(&tokenizer, text, sizeof text - 1, &out) != LM_TEXT_NO_UTF8);
    }
    CHECK(opened > 300 && opened < 2990);
    free(copy);
}

int main(void) {
    uint64_t random = check_seed();
    struct tiny *tiny = malloc(sizeof *tiny);
    struct lm_tokenizer tokenizer;
    make(tiny);
    CHECK(lm_tokenizer_open(&tokenizer, tiny, sizeof *tiny) == 0);
    texts(&tokenizer);
    refused(&tokenizer);
    tokens();
    CHECK(lm_tokenizer_open(&tokenizer, tiny, sizeof *tiny - 1) == LUMEN_E_INVALID);
    CHECK(lm_tokenizer_open(&tokenizer, tiny, 8) == LUMEN_E_INVALID);
    beyond(tiny);
    damaged(tiny, &random);
    wholes(tiny);
    damaged(tiny, &random);
    make_whole(tiny, LM_TEXT_BPE, LM_TEXT_BYTE_FALLBACK | LM_TEXT_IGNORES_MERGES);
    damaged(tiny, &random);
    make_whole(tiny, LM_TEXT_UNIGRAM, LM_TEXT_BYTE_FALLBACK | LM_TEXT_STRIPS_RIGHT);
    damaged(tiny, &random);
    make_whole(tiny, LM_TEXT_WORDPIECE, LM_TEXT_STRIPS_LEFT);
    damaged(tiny, &random);
    free(tiny);
    return check_finish("test_text");
}
