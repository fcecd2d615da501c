/* file.h: a tokenizer as it lies in memory: the file that lumen_uring/text/compile.py writes of a
 * tokenizer.json, mapped and never changed. Any thread.
 *
 * Offsets are bytes from the file's start. The file is checked once, when it is opened
 * (file_check.c); after that every index in it is believed.
 */
#ifndef LM_TEXT_FILE_H
#define LM_TEXT_FILE_H

#include <stddef.h>
#include <stdint.h>

enum {
    LM_TEXT_VERSION = 3,
    LM_TEXT_BLOCK = 256,
    LM_TEXT_BLOCKS = 0x110000 / LM_TEXT_BLOCK,
    LM_TEXT_WORD_CHARS = 200, /* the most that a file's word_chars_max may be */
    LM_TEXT_STAGES_MAX = 12,
    LM_TEXT_SPLITS_MAX = 8,
    LM_TEXT_OPS_MAX = 256,
    LM_TEXT_PREFIX_BYTES_MAX = 4, /* of all prefixes together */
    LM_TEXT_TABLES_MAX = 16,
    LM_TEXT_WINDOW_MIN = 4096,
    LM_TEXT_WINDOW_MAX = 1 << 20,
};

enum lm_text_model_kind { LM_TEXT_WORDPIECE, LM_TEXT_UNIGRAM, LM_TEXT_BPE };

enum lm_text_flags {
    LM_TEXT_DIRECT = 1,          /* WordPiece in one look-up a code point: no stages, no splits */
    LM_TEXT_FUSES_UNKNOWN = 2,   /* neighbours that are unknown are one token */
    LM_TEXT_BYTE_FALLBACK = 4,   /* what is unknown is its bytes */
    LM_TEXT_BYTE_LEVEL = 8,      /* BPE begins with bytes, not with chars */
    LM_TEXT_IGNORES_MERGES = 16, /* BPE: a piece of the vocabulary is that token */
    LM_TEXT_STRIPS_LEFT = 32,    /* blanks at the start of a segment go */
    LM_TEXT_STRIPS_RIGHT = 64,
    LM_TEXT_LOOKS_AHEAD = 128,  /* an added token takes the blanks on its left */
    LM_TEXT_CLEANS = 256,       /* decoding: marks of punctuation stand at the word before */
    LM_TEXT_KEEPS_FIRST = 512,  /* decoding: the blank at a text's start stays */
    LM_TEXT_JOINS_BYTES = 1024, /* decoding: tokens as <0x41> are bytes */
    LM_TEXT_TRIMS = 2048,       /* places have no blanks at their ends */
    LM_TEXT_SKIPS = LM_TEXT_STRIPS_LEFT | LM_TEXT_STRIPS_RIGHT | LM_TEXT_LOOKS_AHEAD,
};

/* The direct WordPiece: the low bits of an action say what its code point becomes; the meaning of
 * the other bits depends on that. */
enum lm_text_action {
    LM_TEXT_WORD,     /* itself, part of a word */
    LM_TEXT_ALONE,    /* itself, a word of its own */
    LM_TEXT_DROPPED,  /* nothing; 1: marks behind it do not change places with those before */
    LM_TEXT_BLANK,    /* the end of a word */
    LM_TEXT_SEQUENCE, /* others: their place in the pool */
    LM_TEXT_MARK,     /* itself, a combining mark: its class, by which it is put in order */
};
enum { LM_TEXT_ACTION_BITS = 3 };

/* ---- normalizers: stages, through which chars go one by one ---- */

enum lm_text_stage_kind {
    LM_TEXT_MAP,      /* each char becomes others (enum lm_text_becoming) */
    LM_TEXT_ORDER,    /* marks in the order of their classes, which the table has */
    LM_TEXT_COMPOSE,  /* what can be one char is (the table of ORDER) */
    LM_TEXT_CLUSTERS, /* what a Precompiled has: `table` as of MAP, `classes` of clusters */
    LM_TEXT_SQUEEZE,  /* at least `least` chars of the mask become those at `to` */
    LM_TEXT_REPLACE,  /* the chars at `from` become those at `to` */
    LM_TEXT_PREPEND,  /* those at `to` before the first char of a segment */
    LM_TEXT_STAGE_KINDS
};

/* The low bits of an entry of MAP's table. */
enum lm_text_becoming {
    LM_TEXT_STAYS,
    LM_TEXT_GOES,
    LM_TEXT_CHARS,    /* those at the place that the other bits tell */
    LM_TEXT_SYLLABLE, /* of Hangul: its letters */
    LM_TEXT_SPACED,   /* itself between blanks */
    LM_TEXT_BECOMINGS
};
enum { LM_TEXT_BECOMING_BITS = 3 };

enum { LM_TEXT_MAY_END = 256 }; /* of ORDER's table: may be the second char of a composition */

struct lm_text_stage {
    uint32_t what, table, classes, mask, least, from, to;
};

/* Two or three chars that a Precompiled turns into others; sorted. */
struct lm_text_group {
    uint32_t chars[3], to; /* the third: 0, there is none */
};

struct lm_text_composition {
    uint32_t first, second, composite; /* sorted */
};

/* ---- pre-tokenizers: splits, each of the pieces of the one before ---- */

enum lm_text_split_kind { LM_TEXT_PREFIX, LM_TEXT_PATTERN, LM_TEXT_SPLIT_KINDS };

/* A match of a pattern: a piece of its own, dropped, or joined to a neighbour. */
enum lm_text_behaviour {
    LM_TEXT_ISOLATED,
    LM_TEXT_REMOVED,
    LM_TEXT_CONTIGUOUS,
    LM_TEXT_WITH_PREVIOUS,
    LM_TEXT_WITH_NEXT,
    LM_TEXT_BEHAVIOURS
};

struct lm_text_split {
    uint32_t what;
    uint32_t behaviour, is_inverted, op; /* of a pattern: its first operation */
    uint32_t prefix, first_only; /* 1 to 3 bytes, from the lowest on; at the text's start alone */
};

/* A pattern's operations lead forward only, so that a match ends. */
enum lm_text_op_kind {
    LM_TEXT_OP_CHARS,     /* `least` to `most` chars of the mask, as many as possible */
    LM_TEXT_OP_EITHER,    /* what follows, else `other` */
    LM_TEXT_OP_JUMP,      /* to `other` */
    LM_TEXT_OP_NOT_AHEAD, /* no char of the mask follows */
    LM_TEXT_OP_END,       /* the piece ends here */
    LM_TEXT_OP_DONE,
    LM_TEXT_OP_KINDS
};

struct lm_text_op {
    uint32_t what, mask, least, most, other;
};

/* ---- models ---- */

enum { LM_TEXT_LSTRIPS = 1, LM_TEXT_RSTRIPS = 2, LM_TEXT_SINGLE_WORD = 4 };

struct lm_text_added {
    uint32_t id, flags;
};

/* A step from a node by a byte. `key` is node << 8 | byte; a `child` of 0 marks an empty place. */
struct lm_text_child {
    uint32_t key, child;
};

/* Two tokens that become one; `id` UINT32_MAX: an empty place. */
struct lm_text_merge {
    uint32_t left, right, rank, id;
};

enum { LM_TEXT_SPECIAL, LM_TEXT_FIRST, LM_TEXT_SECOND };

struct lm_text_item {
    uint32_t what; /* LM_TEXT_SPECIAL: `id`; or a text's tokens */
    uint32_t id, type;
};

struct lm_text_span {
    uint32_t offset, count;
};

#define LM_TEXT_NO_ID UINT32_MAX
/* The classes of every tokenizer: Unicode's white space, and chars of words. */
enum { LM_TEXT_IS_BLANK = 1, LM_TEXT_IS_WORD = 2 };

struct lm_text_header {
    char magic[8]; /* "LMNTEXT" */
    uint32_t version, header_bytes;
    uint64_t file_bytes;
    double unknown_score;       /* Unigram */
    uint32_t model, flags;      /* enum lm_text_model_kind, lm_text_flags */
    uint32_t vocabulary;        /* ids are below it */
    uint32_t unknown;           /* the id of what has none, or LM_TEXT_NO_ID */
    uint32_t word_chars_max;    /* WordPiece: a longer word is unknown */
    uint32_t window;            /* bytes of normalised text that are looked at together */
    uint32_t classes;           /* the table of the classes of chars: bits of masks */
    uint32_t direct;            /* the table of the direct WordPiece */
    uint32_t root, rest;        /* nodes: a piece; a piece that goes on with a word */
    uint32_t added, normalised; /* nodes: added tokens of the raw and of the normalised text */
    uint32_t hash_bits, merge_bits;
    uint32_t decoder, mark; /* enum lm_text_decoder (decoder.h); 0 to 4 bytes, from the lowest on */
    uint32_t first_bytes[2][8];   /* a bit for each byte that an added token begins with */
    struct lm_text_span tables;   /* u16[LM_TEXT_BLOCKS]: a block for each 256 code points */
    struct lm_text_span blocks;   /* u32[LM_TEXT_BLOCK] */
    struct lm_text_span pool;     /* bytes: a count, and for each char its action, its class, its
                                     bytes and their number before them */
    struct lm_text_span chars;    /* u32: a count, and as many code points */
    struct lm_text_span children; /* struct lm_text_child, 1 << hash_bits */
    struct lm_text_span values; /* u32 by node: an id + 1, or 0; of an added token its place + 1 */
    struct lm_text_span tokens; /* struct lm_text_added */
    struct lm_text_span scores; /* f64 by id: Unigram */
    struct lm_text_span merges; /* struct lm_text_merge, 1 << merge_bits: BPE */
    struct lm_text_span bytes;  /* u32[256]: the id of a byte, or LM_TEXT_NO_ID; or none */
    struct lm_text_span stages, splits, ops, groups, compositions;
    struct lm_text_span single, pair;     /* struct lm_text_item: what is put around texts */
    struct lm_text_span names, name_ends; /* bytes, and u32 by id: where its name ends in them */
    struct lm_text_span special;          /* u32: a bit for each id */
};

struct lm_tokenizer {
    const struct lm_text_header *header;
    const uint16_t *tables;
    const uint32_t *blocks;
    const uint8_t *pool;
    const uint32_t *chars;
    const struct lm_text_child *children;
    const uint32_t *values;
    const struct lm_text_added *tokens;
    const double *scores;
    const struct lm_text_merge *merges;
    const uint32_t *bytes;
    const struct lm_text_stage *stages;
    const struct lm_text_split *splits;
    const struct lm_text_op *ops;
    const struct lm_text_group *groups;
    const struct lm_text_composition *compositions;
    const struct lm_text_item *single, *pair;
    const uint8_t *names;
    const uint32_t *name_ends;
    const uint32_t *special;
};

/* The caller keeps the file's bytes, aligned to 8, as long as the tokenizer is used. Returns 0 or
 * LUMEN_E_INVALID. */
int lm_tokenizer_open(struct lm_tokenizer *tokenizer, const void *file, size_t bytes);

/* Checks what lies in the spans. NULL: all is right; else the part that is damaged. */
const char *lm_text_file_wrong(const struct lm_tokenizer *tokenizer);

/* The entry of a code point in a table. */
static inline uint32_t lm_text_entry(const struct lm_tokenizer *tokenizer, uint32_t table,
                                     uint32_t point) {
    const uint32_t block = tokenizer->tables[table * LM_TEXT_BLOCKS + point / LM_TEXT_BLOCK];
    return tokenizer->blocks[block * LM_TEXT_BLOCK + point % LM_TEXT_BLOCK];
}

/* The node behind a byte, or 0. */
static inline uint32_t lm_text_child_of(const struct lm_tokenizer *tokenizer, uint32_t node,
                                        uint8_t byte) {
    const struct lm_text_header *header = tokenizer->header;
    const uint32_t key = node << 8 | byte, mask = (1u << header->hash_bits) - 1;
    for (uint32_t at = (key * 0x9E3779B1u) >> (32 - header->hash_bits);; at = (at + 1) & mask) {
        const struct lm_text_child *child = &tokenizer->children[at];
        if (child->key == key || child->child == 0) return child->child;
    }
}

#endif
