/* file.h: a tokenizer as it lies in memory: the file that lumen_uring/text/compile.py writes of a
 * tokenizer.json, mapped and never changed. Any thread.
 *
 * Offsets are bytes from the file's start. The file is checked once, when it is opened; after that
 * every index in it is believed.
 */
#ifndef LM_TEXT_FILE_H
#define LM_TEXT_FILE_H

#include <stddef.h>
#include <stdint.h>

enum {
    LM_TEXT_VERSION = 1,
    LM_TEXT_BLOCK = 256,
    LM_TEXT_BLOCKS = 0x110000 / LM_TEXT_BLOCK,
    LM_TEXT_WORD_CHARS = 200, /* the most that a file's word_chars_max may be */
};

/* The low bits of an action say what its code point becomes; the meaning of the other bits depends
 * on that. */
enum lm_text_action {
    LM_TEXT_WORD,     /* itself, part of a word */
    LM_TEXT_ALONE,    /* itself, a word of its own */
    LM_TEXT_DROPPED,  /* nothing; 1: marks behind it do not change places with those before */
    LM_TEXT_BLANK,    /* the end of a word */
    LM_TEXT_SEQUENCE, /* others: their place in the pool */
    LM_TEXT_MARK,     /* itself, a combining mark: its class, by which it is put in order */
};

enum { LM_TEXT_ACTION_BITS = 3 };

struct lm_text_span {
    uint32_t offset, count;
};

struct lm_text_header {
    char magic[8]; /* "LMNTEXT" */
    uint32_t version, header_bytes;
    uint64_t file_bytes;
    uint32_t vocabulary;        /* ids are below it */
    uint32_t unknown;           /* the id of what has none */
    uint32_t word_chars_max;    /* a longer word is unknown */
    uint32_t root, rest, added; /* nodes: a word's first piece, its others, added tokens */
    uint32_t hash_bits;
    uint32_t first_bytes[8];      /* a bit for each byte that an added token begins with */
    struct lm_text_span blocks;   /* u16: a block of actions for each 256 code points */
    struct lm_text_span actions;  /* u32 */
    struct lm_text_span pool;     /* bytes: a count, and for each char its action, its class, its
                                     bytes and their number before them */
    struct lm_text_span children; /* struct lm_text_child, 1 << hash_bits */
    struct lm_text_span values;   /* u32 by node: an id + 1, or 0 */
    struct lm_text_span single, pair; /* struct lm_text_item: what is put around texts */
};

/* A step from a node by a byte. `key` is node << 8 | byte; a `child` of 0 marks an empty place. */
struct lm_text_child {
    uint32_t key, child;
};

enum { LM_TEXT_SPECIAL, LM_TEXT_FIRST, LM_TEXT_SECOND };

struct lm_text_item {
    uint32_t what; /* LM_TEXT_SPECIAL: `id`; or a text's tokens */
    uint32_t id, type;
};

struct lm_tokenizer {
    const struct lm_text_header *header;
    const uint16_t *blocks;
    const uint32_t *actions;
    const uint8_t *pool;
    const struct lm_text_child *children;
    const uint32_t *values;
    const struct lm_text_item *single, *pair;
};

/* The caller keeps the file's bytes, aligned to 8, as long as the tokenizer is used. Returns 0 or
 * LUMEN_E_INVALID. */
int lm_tokenizer_open(struct lm_tokenizer *tokenizer, const void *file, size_t bytes);

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
