/* file.c: see file.h. */
#include "text/file.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "lumen.h"

static const char magic[8] = "LMNTEXT";

static int damaged(const char *what) {
    return lm_error(LUMEN_E_INVALID, "the tokenizer's file is damaged: %s", what);
}

/* Whether a span of elements lies in the file, where its elements are aligned. */
static bool lies(const struct lm_text_header *header, const struct lm_text_span *span,
                 size_t element_bytes, size_t alignment) {
    uint64_t end = span->offset + (uint64_t)span->count * element_bytes;
    return span->offset >= header->header_bytes && span->offset % alignment == 0 &&
           end <= header->file_bytes;
}

static bool spans_lie(const struct lm_text_header *header) {
    return lies(header, &header->blocks, 2, 2) && lies(header, &header->actions, 4, 4) &&
           lies(header, &header->pool, 1, 1) &&
           lies(header, &header->children, sizeof(struct lm_text_child), 4) &&
           lies(header, &header->values, 4, 4) &&
           lies(header, &header->single, sizeof(struct lm_text_item), 4) &&
           lies(header, &header->pair, sizeof(struct lm_text_item), 4);
}

/* Whether a sequence of chars lies in the pool, each of 1 to 4 bytes and of an action of its own.
 */
static bool sequence_lies(const struct lm_tokenizer *tokenizer, uint32_t at) {
    const uint32_t end = tokenizer->header->pool.count;
    if (at >= end) return false;
    uint32_t chars = tokenizer->pool[at++];
    for (; chars > 0; chars--) {
        if (end - at < 3) return false;
        uint8_t action = tokenizer->pool[at], bytes = tokenizer->pool[at + 2];
        bool is_own = action <= LM_TEXT_BLANK || action == LM_TEXT_MARK;
        if (!is_own || bytes < 1 || bytes > 4 || end - at - 3 < bytes) return false;
        at += 3u + bytes;
    }
    return true;
}

static bool actions_are_right(const struct lm_tokenizer *tokenizer) {
    const struct lm_text_header *header = tokenizer->header;
    if (header->blocks.count != LM_TEXT_BLOCKS || header->actions.count % LM_TEXT_BLOCK != 0)
        return false;
    for (uint32_t b = 0; b < LM_TEXT_BLOCKS; b++)
        if (tokenizer->blocks[b] >= header->actions.count / LM_TEXT_BLOCK) return false;
    for (uint32_t a = 0; a < header->actions.count; a++) {
        uint32_t action = tokenizer->actions[a] & ((1u << LM_TEXT_ACTION_BITS) - 1);
        uint32_t own = tokenizer->actions[a] >> LM_TEXT_ACTION_BITS;
        if (action > LM_TEXT_MARK || (action == LM_TEXT_MARK && own > UINT8_MAX)) return false;
        if (action == LM_TEXT_SEQUENCE && !sequence_lies(tokenizer, own)) return false;
    }
    return true;
}

/* Whether each search in the hash table ends, at its step or at an empty place, and each step and
 * value lies in its bounds. */
static bool nodes_are_right(const struct lm_tokenizer *tokenizer) {
    const struct lm_text_header *header = tokenizer->header;
    const uint32_t nodes = header->values.count;
    uint32_t empty = 0;
    if (header->hash_bits < 1 || header->hash_bits > 30 || nodes < 1 || nodes > 1u << 24)
        return false;
    if (header->children.count != 1u << header->hash_bits) return false;
    if (header->root >= nodes || header->rest >= nodes || header->added >= nodes) return false;
    for (uint32_t c = 0; c < header->children.count; c++) {
        if (tokenizer->children[c].child >= nodes) return false;
        empty += tokenizer->children[c].child == 0;
    }
    for (uint32_t n = 0; n < nodes; n++)
        if (tokenizer->values[n] > header->vocabulary) return false;
    return empty > 0;
}

static bool items_are_right(const struct lm_tokenizer *tokenizer) {
    const struct lm_text_header *header = tokenizer->header;
    const struct lm_text_item *items[] = {tokenizer->single, tokenizer->pair};
    const uint32_t counts[] = {header->single.count, header->pair.count};
    for (int t = 0; t < 2; t++) {
        if (counts[t] > 16) return false;
        for (uint32_t i = 0; i < counts[t]; i++)
            if (items[t][i].what > LM_TEXT_SECOND || items[t][i].id >= header->vocabulary)
                return false;
    }
    return header->unknown < header->vocabulary && header->word_chars_max <= LM_TEXT_WORD_CHARS;
}

int lm_tokenizer_open(struct lm_tokenizer *tokenizer, const void *file, size_t bytes) {
    const struct lm_text_header *header = file;
    const char *start = file;
    if (bytes < sizeof *header || memcmp(header->magic, magic, sizeof magic) != 0)
        return damaged("it does not begin as one");
    if (header->version != LM_TEXT_VERSION || header->header_bytes != sizeof *header)
        return damaged("it is of another version of Lumen");
    if (header->file_bytes != bytes) return damaged("it has another length than it says");
    if (!spans_lie(header)) return damaged("a part lies outside of it");
    *tokenizer = (struct lm_tokenizer){
        .header = header,
        .blocks = (const uint16_t *)(const void *)(start + header->blocks.offset),
        .actions = (const uint32_t *)(const void *)(start + header->actions.offset),
        .pool = (const uint8_t *)(start + header->pool.offset),
        .children = (const struct lm_text_child *)(const void *)(start + header->children.offset),
        .values = (const uint32_t *)(const void *)(start + header->values.offset),
        .single = (const struct lm_text_item *)(const void *)(start + header->single.offset),
        .pair = (const struct lm_text_item *)(const void *)(start + header->pair.offset)};
    if (!actions_are_right(tokenizer)) return damaged("what a code point becomes");
    if (!nodes_are_right(tokenizer)) return damaged("its vocabulary");
    if (!items_are_right(tokenizer)) return damaged("what is put around texts");
    return 0;
}
