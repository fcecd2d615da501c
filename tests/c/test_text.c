/* test_text.c: tokenizers' files and texts: what is no UTF-8, marks and their order, lengths, and a
 * file with any byte changed, which is refused or harmless. That ids are those of the wheel
 * `tokenizers` is tested from Python (tests/test_text_tokenizer.py).
 */
#include <stddef.h>

#include "check.h"
#include "lumen.h"
#include "text/encode.h"
#include "text/pieces.h"
#include "text/utf8.h"

enum { HASH_BITS = 6, NODES = 16, VOCABULARY = 8 };

/* Ids: 0 unknown, 1 begin, 2 end, 3 "a", 4 "##b", 5 "!", 6 the marks N and M in the order M N.
 * Code points: a and b are letters, ! stands alone, a blank ends words, D goes, S becomes "a!b", M
 * and N are marks of the classes 5 and 9. */
struct tiny {
    struct lm_text_header header;
    uint16_t blocks[LM_TEXT_BLOCKS];
    uint32_t actions[2 * LM_TEXT_BLOCK];
    uint8_t pool[16];
    struct lm_text_child children[1 << HASH_BITS];
    uint32_t values[NODES];
    struct lm_text_item single[3], pair[5];
};

static uint32_t nodes;

static uint32_t step(struct tiny *tiny, uint32_t node, uint8_t byte) {
    const uint32_t key = node << 8 | byte;
    uint32_t at = (key * 0x9E3779B1u) >> (32 - HASH_BITS);
    while (tiny->children[at].child && tiny->children[at].key != key)
        at = (at + 1) % (1 << HASH_BITS);
    if (!tiny->children[at].child)
        tiny->children[at] = (struct lm_text_child){.key = key, .child = nodes++};
    return tiny->children[at].child;
}

static void add(struct tiny *tiny, uint32_t root, const char *text, uint32_t id) {
    uint32_t node = root;
    for (; *text; text++) node = step(tiny, node, (uint8_t)*text);
    tiny->values[node] = id + 1;
}

#define SPAN(field, number) {(uint32_t)offsetof(struct tiny, field), (number)}

static void make(struct tiny *tiny) {
    static const uint8_t pool[] = {3,   LM_TEXT_WORD, 0, 1, 'a', LM_TEXT_ALONE, 0, 1,
                                   '!', LM_TEXT_WORD, 0, 1, 'b'};
    *tiny = (struct tiny){
        .single = {{LM_TEXT_SPECIAL, 1, 0}, {LM_TEXT_FIRST, 0, 0}, {LM_TEXT_SPECIAL, 2, 0}},
        .pair = {{LM_TEXT_SPECIAL, 1, 0},
                 {LM_TEXT_FIRST, 0, 0},
                 {LM_TEXT_SPECIAL, 2, 0},
                 {LM_TEXT_SECOND, 0, 1},
                 {LM_TEXT_SPECIAL, 2, 1}}};
    memcpy(tiny->pool, pool, sizeof pool);
    for (uint32_t b = 1; b < LM_TEXT_BLOCKS; b++) tiny->blocks[b] = 1;
    tiny->actions[' '] = LM_TEXT_BLANK;
    tiny->actions['!'] = LM_TEXT_ALONE;
    tiny->actions['D'] = LM_TEXT_DROPPED | 1 << LM_TEXT_ACTION_BITS;
    tiny->actions['S'] = LM_TEXT_SEQUENCE;
    tiny->actions['M'] = LM_TEXT_MARK | 5 << LM_TEXT_ACTION_BITS;
    tiny->actions['N'] = LM_TEXT_MARK | 9 << LM_TEXT_ACTION_BITS;
    nodes = 4; /* 0 none, 1 root, 2 rest, 3 added */
    add(tiny, 1, "a", 3);
    add(tiny, 2, "b", 4);
    add(tiny, 1, "!", 5);
    add(tiny, 1, "MN", 6);
    add(tiny, 3, "[E]", 2);
    CHECK(nodes <= NODES);
    tiny->header = (struct lm_text_header){.magic = "LMNTEXT",
                                           .version = LM_TEXT_VERSION,
                                           .header_bytes = sizeof tiny->header,
                                           .file_bytes = sizeof *tiny,
                                           .vocabulary = VOCABULARY,
                                           .word_chars_max = 4,
                                           .root = 1,
                                           .rest = 2,
                                           .added = 3,
                                           .hash_bits = HASH_BITS,
                                           .blocks = SPAN(blocks, LM_TEXT_BLOCKS),
                                           .actions = SPAN(actions, 2 * LM_TEXT_BLOCK),
                                           .pool = SPAN(pool, sizeof pool),
                                           .children = SPAN(children, 1 << HASH_BITS),
                                           .values = SPAN(values, NODES),
                                           .single = SPAN(single, 3),
                                           .pair = SPAN(pair, 5)};
    tiny->header.first_bytes['[' / 32] |= 1u << '[' % 32;
}

/* ---- texts ---- */

static int64_t ids[64], types[64], rest[64];

static void has(const struct lm_tokenizer *tokenizer, const char *first, const char *second,
                const char *expected) {
    const struct lm_text_room room = {ids, types, rest, 64};
    char said[256] = "";
    uint32_t count =
        lm_text_encode(tokenizer, (struct lm_text){first, strlen(first)},
                       (struct lm_text){second, second ? strlen(second) : 0}, 12, true, &room);
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
}

static void refused(const struct lm_tokenizer *tokenizer) {
    static const char *const none[] = {"\x80",         "a\xC3",        "\xC0\x80",
                                       "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                       "\xFF",         "\xF0\x9F\x98"};
    const struct lm_text_room room = {ids, types, rest, 64};
    for (size_t t = 0; t < sizeof none / sizeof *none; t++) {
        CHECK_AT("text %zu", t);
        CHECK(lm_text_pieces(tokenizer, none[t], strlen(none[t]), ids, 64, 64) == LM_TEXT_NO_UTF8);
    }
    const struct lm_text two = {"a a", 3}, no = {0};
    CHECK(lm_text_encode(tokenizer, two, no, 4, false, &room) == 4);
    CHECK(lm_text_encode(tokenizer, two, no, 3, false, &room) == LM_TEXT_TOO_LONG);
    CHECK(lm_text_encode(tokenizer, two, no, 3, true, &room) == 3);
    CHECK(lm_text_encode(tokenizer, two, no, 2, true, &room) == LM_TEXT_TOO_SMALL);
    CHECK(lm_text_encode(tokenizer, two, two, 3, true, &room) == LM_TEXT_TOO_SMALL);
    static const uint8_t last[] = {0xF4, 0x8F, 0xBF, 0xBF};
    uint32_t bytes;
    CHECK(lm_utf8_at(last, last + 4, &bytes) == 0x10FFFF && bytes == 4);
    CHECK(lm_utf8_at(last, last + 3, &bytes) == 0 && bytes == 0);
}

/* Every file that opens has ids of its vocabulary alone, and is read within its bounds. */
static void damaged(const struct tiny *whole, uint64_t *random) {
    const char text[] = "ab S!NDM [E] \xC3\xA9 aaaaa";
    struct tiny *copy = malloc(sizeof *copy);
    uint32_t opened = 0;
    for (int round = 0; round < 20000; round++) {
        struct lm_tokenizer tokenizer;
        memcpy(copy, whole, sizeof *copy);
        /* Most of the file is its table of blocks. */
        uint32_t at = check_below(random, sizeof *copy);
        if (round % 2) at = at < 4096 ? at % sizeof copy->header : at;
        if (round % 4 == 1) at = check_below(random, sizeof copy->header);
        if (round % 4 == 3)
            at = (uint32_t)(offsetof(struct tiny, actions) +
                            check_below(random, sizeof *copy - offsetof(struct tiny, actions)));
        ((uint8_t *)copy)[at] ^= (uint8_t)(1u << check_below(random, 8));
        if (lm_tokenizer_open(&tokenizer, copy, sizeof *copy)) continue;
        opened++;
        uint32_t count = lm_text_pieces(&tokenizer, text, sizeof text - 1, ids, 64, 64);
        CHECK_AT("byte %u", at);
        CHECK(count != LM_TEXT_NO_UTF8);
        for (uint32_t t = 0; t < count && t < 64; t++)
            CHECK(ids[t] >= 0 && ids[t] < (int64_t)copy->header.vocabulary);
    }
    CHECK(opened > 1000 && opened < 19000);
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
    CHECK(lm_tokenizer_open(&tokenizer, tiny, sizeof *tiny - 1) == LUMEN_E_INVALID);
    CHECK(lm_tokenizer_open(&tokenizer, tiny, 8) == LUMEN_E_INVALID);
    damaged(tiny, &random);
    free(tiny);
    return check_finish("test_text");
}
