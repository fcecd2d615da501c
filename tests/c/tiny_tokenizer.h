/* tiny_tokenizer.h: a tokenizer's file (text/file.h) of twelve tokens that has one of everything,
 * for C tests. One thread.
 */
#ifndef TESTS_C_TINY_TOKENIZER_H
#define TESTS_C_TINY_TOKENIZER_H

#include <stddef.h>

#include "check.h"
#include "text/clusters.h"
#include "text/decode.h"

enum {
    HASH_BITS = 7,
    MERGE_BITS = 3,
    NODES = 40,
    VOCABULARY = 12,
    CHARS = 32,
    BLOCKS = 5,
    NAME_BYTES = 20
};

/* Tables: 0 is of the direct WordPiece, 1 of classes, 2 of what chars become, 3 of combining marks,
 * 4 of clusters. All chars above U+00FF are of an empty block. */
enum { DIRECT, CLASSES, BECOMES, MARKS, CLUSTERS, TABLES };

/* Ids: 0 unknown, 1 begin, 2 end, 3 "a", 4 "##b", 5 "!", 6 the marks N and M in the order M N, 7
 * "b", 8 "ab", 9 "bb", 10 "_a".
 * Code points: a and b are letters, ! stands alone, a blank ends words, D goes, S becomes "a!b", M
 * and N are marks of the classes 5 and 9, A and N are a, J goes on with a cluster. */
struct tiny {
    struct lm_text_header header;
    uint16_t tables[TABLES][LM_TEXT_BLOCKS];
    uint32_t blocks[BLOCKS + 1][LM_TEXT_BLOCK];
    uint8_t pool[16];
    uint32_t chars[CHARS];
    struct lm_text_child children[1 << HASH_BITS];
    uint32_t values[NODES];
    struct lm_text_added tokens[2];
    double scores[VOCABULARY];
    struct lm_text_merge merges[1 << MERGE_BITS];
    uint32_t bytes[256];
    struct lm_text_stage stages[7];
    struct lm_text_split splits[3];
    struct lm_text_op ops[12];
    struct lm_text_group groups[2];
    struct lm_text_composition compositions[1];
    struct lm_text_item single[3], pair[5];
    uint8_t names[NAME_BYTES];
    uint32_t name_ends[VOCABULARY];
    uint32_t special[1];
};

static uint32_t nodes;

static inline uint32_t step(struct tiny *tiny, uint32_t node, uint8_t byte) {
    const uint32_t key = node << 8 | byte;
    uint32_t at = (key * 0x9E3779B1u) >> (32 - HASH_BITS);
    while (tiny->children[at].child && tiny->children[at].key != key)
        at = (at + 1) % (1 << HASH_BITS);
    if (!tiny->children[at].child)
        tiny->children[at] = (struct lm_text_child){.key = key, .child = nodes++};
    return tiny->children[at].child;
}

static inline void add(struct tiny *tiny, uint32_t root, const char *text, uint32_t id) {
    uint32_t node = root;
    for (; *text; text++) node = step(tiny, node, (uint8_t)*text);
    tiny->values[node] = id + 1;
}

static inline void join(struct tiny *tiny, uint32_t left, uint32_t right, uint32_t rank,
                        uint32_t id) {
    uint32_t at = (left * 0x9E3779B1u ^ right * 0x85EBCA6Bu) * 0xC2B2AE35u >> (32 - MERGE_BITS);
    while (tiny->merges[at].id != LM_TEXT_NO_ID) at = (at + 1) % (1 << MERGE_BITS);
    tiny->merges[at] = (struct lm_text_merge){left, right, rank, id};
}

#define SPAN(field, number) {(uint32_t)offsetof(struct tiny, field), (number)}

static inline void make_tables(struct tiny *tiny) {
    static const uint8_t pool[] = {3,   LM_TEXT_WORD, 0, 1, 'a', LM_TEXT_ALONE, 0, 1,
                                   '!', LM_TEXT_WORD, 0, 1, 'b'};
    memcpy(tiny->pool, pool, sizeof pool);
    for (uint32_t t = 0; t < TABLES; t++) {
        tiny->tables[t][0] = (uint16_t)t;
        for (uint32_t b = 1; b < LM_TEXT_BLOCKS; b++) tiny->tables[t][b] = BLOCKS;
    }
    uint32_t *direct = tiny->blocks[DIRECT], *classes = tiny->blocks[CLASSES];
    direct[' '] = LM_TEXT_BLANK;
    direct['!'] = LM_TEXT_ALONE;
    direct['D'] = LM_TEXT_DROPPED | 1 << LM_TEXT_ACTION_BITS;
    direct['S'] = LM_TEXT_SEQUENCE;
    direct['M'] = LM_TEXT_MARK | 5 << LM_TEXT_ACTION_BITS;
    direct['N'] = LM_TEXT_MARK | 9 << LM_TEXT_ACTION_BITS;
    for (uint32_t c = 'a'; c <= 'z'; c++) classes[c] = LM_TEXT_IS_WORD;
    classes[' '] = LM_TEXT_IS_BLANK;
    classes['!'] = 4;
    tiny->blocks[BECOMES]['D'] = LM_TEXT_GOES;
    tiny->blocks[BECOMES]['S'] = LM_TEXT_CHARS | 1 << LM_TEXT_BECOMING_BITS;
    tiny->blocks[BECOMES]['Y'] = LM_TEXT_SYLLABLE;
    tiny->blocks[MARKS]['M'] = 5;
    tiny->blocks[MARKS]['N'] = 9 | LM_TEXT_MAY_END;
    tiny->blocks[CLUSTERS]['J'] = LM_CLUSTER_EXTEND;
    tiny->blocks[CLUSTERS]['P'] = LM_CLUSTER_PICTURE;
    tiny->blocks[CLUSTERS]['C'] = LM_CLUSTER_CONSONANT;
    tiny->blocks[CLUSTERS]['L'] = LM_CLUSTER_EXTEND | LM_CLUSTER_LINKER;
}

static inline void make_parts(struct tiny *tiny) {
    /* At 1 a!b, at 5 _, at 7 two blanks, at 10 ``, at 13 " */
    static const uint32_t chars[] = {0, 3, 'a', '!', 'b', 1, '_', 2, ' ', ' ', 2, '`', '`', 1, '!'};
    *tiny = (struct tiny){
        .tokens = {{2, 0}, {2, LM_TEXT_LSTRIPS | LM_TEXT_RSTRIPS | LM_TEXT_SINGLE_WORD}},
        .scores = {-9, -9, -9, -2, -3, -2, -4, -2, -3, -1, -2},
        .stages = {{.what = LM_TEXT_MAP, .table = BECOMES},
                   {.what = LM_TEXT_ORDER, .table = MARKS},
                   {.what = LM_TEXT_COMPOSE, .table = MARKS},
                   {.what = LM_TEXT_CLUSTERS, .table = BECOMES, .classes = CLUSTERS},
                   {.what = LM_TEXT_SQUEEZE, .mask = 4, .least = 2, .to = 13},
                   {.what = LM_TEXT_REPLACE, .from = 10, .to = 13},
                   {.what = LM_TEXT_PREPEND, .to = 5}},
        .splits = {{.what = LM_TEXT_PATTERN, .behaviour = LM_TEXT_REMOVED},
                   {.what = LM_TEXT_PREFIX, .prefix = '_'},
                   {.what = LM_TEXT_PATTERN, .behaviour = LM_TEXT_WITH_NEXT, .op = 2}},
        .ops = {{LM_TEXT_OP_CHARS, LM_TEXT_IS_BLANK, 1, UINT32_MAX, 0},
                {.what = LM_TEXT_OP_DONE},
                {.what = LM_TEXT_OP_EITHER, .other = 6},
                {LM_TEXT_OP_CHARS, 4, 1, UINT32_MAX, 0},
                {LM_TEXT_OP_NOT_AHEAD, LM_TEXT_IS_WORD, 0, 0, 0},
                {.what = LM_TEXT_OP_JUMP, .other = 11},
                {.what = LM_TEXT_OP_EITHER, .other = 10},
                {LM_TEXT_OP_CHARS, 4, 0, 2, 0},
                {.what = LM_TEXT_OP_END},
                {.what = LM_TEXT_OP_JUMP, .other = 11},
                {LM_TEXT_OP_CHARS, 4, 1, 1, 0},
                {.what = LM_TEXT_OP_DONE}},
        .groups = {{{'a', 'J', 0}, 13}, {{'b', 'J', 'J'}, 5}},
        .compositions = {{'a', 'N', 'b'}},
        .single = {{LM_TEXT_SPECIAL, 1, 0}, {LM_TEXT_FIRST, 0, 0}, {LM_TEXT_SPECIAL, 2, 0}},
        .pair = {{LM_TEXT_SPECIAL, 1, 0},
                 {LM_TEXT_FIRST, 0, 0},
                 {LM_TEXT_SPECIAL, 2, 0},
                 {LM_TEXT_SECOND, 0, 1},
                 {LM_TEXT_SPECIAL, 2, 1}}};
    memcpy(tiny->chars, chars, sizeof chars);
}

static inline void make_vocabulary(struct tiny *tiny) {
    static const char names[] = "?<>a##b!MNbabbb_a";
    static const uint32_t ends[VOCABULARY] = {1, 2, 3, 4, 7, 8, 10, 11, 13, 15, 17, 17};
    memcpy(tiny->names, names, sizeof names - 1);
    memcpy(tiny->name_ends, ends, sizeof ends);
    tiny->special[0] = 6;
    for (uint32_t m = 0; m < 1 << MERGE_BITS; m++) tiny->merges[m].id = LM_TEXT_NO_ID;
    join(tiny, 3, 7, 1, 8);
    join(tiny, 7, 7, 0, 9);
    for (uint32_t b = 0; b < 256; b++) tiny->bytes[b] = LM_TEXT_NO_ID;
    tiny->bytes['a'] = 3;
    tiny->bytes['b'] = 7;
    nodes = 5; /* 0 none, 1 root, 2 rest, 3 and 4 added */
    add(tiny, 1, "a", 3);
    add(tiny, 2, "b", 4);
    add(tiny, 1, "!", 5);
    add(tiny, 1, "MN", 6);
    add(tiny, 3, "[E]", 0);
    add(tiny, 4, "[F]", 1);
    CHECK(nodes <= NODES);
}

static inline void make_header(struct tiny *tiny) {
    tiny->header = (struct lm_text_header){.magic = "LMNTEXT",
                                           .version = LM_TEXT_VERSION,
                                           .header_bytes = sizeof tiny->header,
                                           .file_bytes = sizeof *tiny,
                                           .unknown_score = -19,
                                           .decoder = LM_TEXT_FROM_WORDPIECE,
                                           .mark = '#' | '#' << 8,
                                           .model = LM_TEXT_WORDPIECE,
                                           .flags = LM_TEXT_DIRECT,
                                           .vocabulary = VOCABULARY,
                                           .word_chars_max = 4,
                                           .window = LM_TEXT_WINDOW_MIN,
                                           .classes = CLASSES,
                                           .direct = DIRECT,
                                           .root = 1,
                                           .rest = 2,
                                           .added = 3,
                                           .hash_bits = HASH_BITS,
                                           .merge_bits = MERGE_BITS,
                                           .tables = SPAN(tables, TABLES),
                                           .blocks = SPAN(blocks, BLOCKS + 1),
                                           .pool = SPAN(pool, sizeof tiny->pool),
                                           .chars = SPAN(chars, CHARS),
                                           .children = SPAN(children, 1 << HASH_BITS),
                                           .values = SPAN(values, NODES),
                                           .tokens = SPAN(tokens, 2),
                                           .scores = SPAN(scores, VOCABULARY),
                                           .merges = SPAN(merges, 1 << MERGE_BITS),
                                           .bytes = SPAN(bytes, 0),
                                           .stages = SPAN(stages, 0),
                                           .splits = SPAN(splits, 0),
                                           .ops = SPAN(ops, 0),
                                           .groups = SPAN(groups, 0),
                                           .compositions = SPAN(compositions, 0),
                                           .single = SPAN(single, 3),
                                           .pair = SPAN(pair, 5),
                                           .names = SPAN(names, NAME_BYTES),
                                           .name_ends = SPAN(name_ends, VOCABULARY),
                                           .special = SPAN(special, 1)};
    tiny->header.first_bytes[0]['[' / 32] |= 1u << '[' % 32;
}

/* WordPiece in one look-up a code point. */
static inline void make(struct tiny *tiny) {
    make_parts(tiny);
    make_tables(tiny);
    make_vocabulary(tiny);
    make_header(tiny);
}

/* All stages and splits, and another model. */
static inline void make_whole(struct tiny *tiny, enum lm_text_model_kind model, uint32_t flags) {
    make(tiny);
    struct lm_text_header *header = &tiny->header;
    header->model = model;
    header->flags = flags | LM_TEXT_LOOKS_AHEAD;
    header->stages.count = 7;
    header->splits.count = 3;
    header->ops.count = 12;
    header->groups.count = 2;
    header->compositions.count = 1;
    header->normalised = 4;
    header->first_bytes[1]['[' / 32] |= 1u << '[' % 32;
    if (flags & (LM_TEXT_BYTE_LEVEL | LM_TEXT_BYTE_FALLBACK)) header->bytes.count = 256;
    for (uint32_t b = 0; flags & LM_TEXT_BYTE_FALLBACK && b < 256; b++) tiny->bytes[b] = b % 12;
    add(tiny, 1, "b", 7);
    add(tiny, 1, "ab", 8);
    add(tiny, 1, "bb", 9);
    add(tiny, 1, "_a", 10);
}

#endif
