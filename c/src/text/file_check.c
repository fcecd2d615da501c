/* file_check.c: what lies in a tokenizer's file (file.h): every index in it leads to something, and
 * whatever walks it comes to an end. */
#include <stdbool.h>

#include "text/decoder.h"
#include "text/file.h"
#include "text/utf8.h"

/* ---- tables ---- */

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

static bool action_is_right(const struct lm_tokenizer *tokenizer, uint32_t entry) {
    const uint32_t action = entry & ((1u << LM_TEXT_ACTION_BITS) - 1);
    const uint32_t own = entry >> LM_TEXT_ACTION_BITS;
    if (action > LM_TEXT_MARK || (action == LM_TEXT_MARK && own > UINT8_MAX)) return false;
    return action != LM_TEXT_SEQUENCE || sequence_lies(tokenizer, own);
}

/* Whether there is a count at `at`, and as many code points behind it. */
static bool chars_lie(const struct lm_tokenizer *tokenizer, uint32_t at, uint32_t most) {
    const uint32_t end = tokenizer->header->chars.count;
    if (at >= end || tokenizer->chars[at] > most || tokenizer->chars[at] > end - at - 1)
        return false;
    for (uint32_t c = 1; c <= tokenizer->chars[at]; c++) {
        const uint32_t point = tokenizer->chars[at + c];
        if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return false;
    }
    return true;
}

static bool becoming_is_right(const struct lm_tokenizer *tokenizer, uint32_t entry) {
    const uint32_t what = entry & ((1u << LM_TEXT_BECOMING_BITS) - 1);
    return (what < LM_TEXT_BECOMINGS && what != LM_TEXT_CHARS) ||
           chars_lie(tokenizer, entry >> LM_TEXT_BECOMING_BITS, LM_TEXT_BLOCK);
}

static bool table_is_right(const struct lm_tokenizer *tokenizer, uint32_t table,
                           bool (*is_right)(const struct lm_tokenizer *, uint32_t)) {
    const struct lm_text_header *header = tokenizer->header;
    if (table >= header->tables.count) return false;
    const uint16_t *blocks = tokenizer->tables + (size_t)table * LM_TEXT_BLOCKS;
    uint32_t before = UINT32_MAX; /* most blocks are as the one before */
    for (uint32_t b = 0; b < LM_TEXT_BLOCKS; b++) {
        if (blocks[b] >= header->blocks.count) return false;
        if (blocks[b] == before || !is_right) continue;
        before = blocks[b];
        for (uint32_t e = 0; e < LM_TEXT_BLOCK; e++)
            if (!is_right(tokenizer, tokenizer->blocks[before * LM_TEXT_BLOCK + e])) return false;
    }
    return true;
}

/* ---- stages, splits, operations ---- */

static bool stage_is_right(const struct lm_tokenizer *tokenizer,
                           const struct lm_text_stage *stage) {
    switch ((enum lm_text_stage_kind)stage->what) {
    case LM_TEXT_MAP: return table_is_right(tokenizer, stage->table, becoming_is_right);
    case LM_TEXT_ORDER:
    case LM_TEXT_COMPOSE: return table_is_right(tokenizer, stage->table, NULL);
    case LM_TEXT_CLUSTERS:
        return table_is_right(tokenizer, stage->table, becoming_is_right) &&
               table_is_right(tokenizer, stage->classes, NULL);
    case LM_TEXT_SQUEEZE:
        return stage->least >= 1 && stage->least <= 2 && chars_lie(tokenizer, stage->to, 16);
    case LM_TEXT_REPLACE:
        return chars_lie(tokenizer, stage->from, 16) && tokenizer->chars[stage->from] > 0 &&
               chars_lie(tokenizer, stage->to, 16);
    case LM_TEXT_PREPEND: return chars_lie(tokenizer, stage->to, 16);
    case LM_TEXT_STAGE_KINDS: break;
    }
    return false;
}

static bool stages_are_right(const struct lm_tokenizer *tokenizer) {
    const struct lm_text_header *header = tokenizer->header;
    if (header->tables.count > LM_TEXT_TABLES_MAX || header->stages.count > LM_TEXT_STAGES_MAX ||
        !table_is_right(tokenizer, header->classes, NULL))
        return false;
    if (header->flags & LM_TEXT_DIRECT &&
        (header->flags & LM_TEXT_SKIPS || header->model != LM_TEXT_WORDPIECE ||
         !table_is_right(tokenizer, header->direct, action_is_right)))
        return false;
    for (uint32_t s = 0; s < header->stages.count; s++)
        if (tokenizer->stages[s].what >= LM_TEXT_STAGE_KINDS ||
            !stage_is_right(tokenizer, &tokenizer->stages[s]))
            return false;
    for (uint32_t g = 0; g < header->groups.count; g++)
        if (!chars_lie(tokenizer, tokenizer->groups[g].to, LM_TEXT_BLOCK)) return false;
    for (uint32_t c = 0; c < header->compositions.count; c++)
        if (tokenizer->compositions[c].composite > 0xD7FF &&
            (tokenizer->compositions[c].composite < 0xE000 ||
             tokenizer->compositions[c].composite > 0x10FFFF))
            return false;
    return true;
}

/* Whether the bytes, from the lowest on, are one code point. */
static bool is_char(uint32_t prefix) {
    const uint8_t bytes[3] = {(uint8_t)prefix, (uint8_t)(prefix >> 8), (uint8_t)(prefix >> 16)};
    const uint32_t count = bytes[2] ? 3 : bytes[1] ? 2 : 1;
    uint32_t length;
    return lm_utf8_at(bytes, bytes + count, &length) && length == count && prefix >> 24 == 0;
}

static bool splits_are_right(const struct lm_tokenizer *tokenizer) {
    const struct lm_text_header *header = tokenizer->header;
    const uint32_t ops = header->ops.count;
    uint32_t prefix_bytes = 0; /* all prefixes may come before one piece */
    if (header->splits.count > LM_TEXT_SPLITS_MAX || ops > LM_TEXT_OPS_MAX) return false;
    for (uint32_t o = 0; o < ops; o++) {
        const struct lm_text_op *op = &tokenizer->ops[o];
        const bool leads = op->what == LM_TEXT_OP_EITHER || op->what == LM_TEXT_OP_JUMP;
        if (op->what >= LM_TEXT_OP_KINDS || (leads && (op->other <= o || op->other >= ops)))
            return false;
    }
    if (ops > 0 && tokenizer->ops[ops - 1].what != LM_TEXT_OP_DONE) return false;
    for (uint32_t s = 0; s < header->splits.count; s++) {
        const struct lm_text_split *split = &tokenizer->splits[s];
        if (split->what >= LM_TEXT_SPLIT_KINDS || split->behaviour >= LM_TEXT_BEHAVIOURS)
            return false;
        if (split->what == LM_TEXT_PATTERN && split->op >= ops) return false;
        if (split->what == LM_TEXT_PREFIX && !is_char(split->prefix)) return false;
        if (split->what == LM_TEXT_PREFIX)
            prefix_bytes += split->prefix >> 16 ? 3 : split->prefix >> 8 ? 2 : 1;
    }
    return prefix_bytes <= LM_TEXT_PREFIX_BYTES_MAX;
}

/* ---- the vocabulary ---- */

/* Whether each search in the hash table ends, at its step or at an empty place, and each step and
 * value lies in its bounds. */
static bool nodes_are_right(const struct lm_tokenizer *tokenizer) {
    const struct lm_text_header *header = tokenizer->header;
    const uint32_t nodes = header->values.count;
    uint32_t empty = 0;
    if (header->hash_bits < 1 || header->hash_bits > 30 || nodes < 1 || nodes > 1u << 24)
        return false;
    if (header->children.count != 1u << header->hash_bits) return false;
    if (header->root >= nodes || header->rest >= nodes || header->added >= nodes ||
        header->normalised >= nodes)
        return false;
    for (uint32_t c = 0; c < header->children.count; c++) {
        if (tokenizer->children[c].child >= nodes) return false;
        empty += tokenizer->children[c].child == 0;
    }
    for (uint32_t n = 0; n < nodes; n++)
        if (tokenizer->values[n] > header->vocabulary) return false;
    return empty > 0;
}

static bool merges_are_right(const struct lm_tokenizer *tokenizer) {
    const struct lm_text_header *header = tokenizer->header;
    uint32_t empty = 0;
    if (header->model != LM_TEXT_BPE) return true;
    if (header->merge_bits < 1 || header->merge_bits > 28 ||
        header->merges.count != 1u << header->merge_bits)
        return false;
    for (uint32_t m = 0; m < header->merges.count; m++) {
        const uint32_t id = tokenizer->merges[m].id;
        if (id >= header->vocabulary && id != LM_TEXT_NO_ID) return false;
        empty += id == LM_TEXT_NO_ID;
    }
    return empty > 0;
}

static bool models_are_right(const struct lm_tokenizer *tokenizer) {
    const struct lm_text_header *header = tokenizer->header;
    const uint32_t with_bytes = LM_TEXT_BYTE_FALLBACK | LM_TEXT_BYTE_LEVEL;
    if (header->model > LM_TEXT_BPE || header->word_chars_max > LM_TEXT_WORD_CHARS ||
        header->window < LM_TEXT_WINDOW_MIN || header->window > LM_TEXT_WINDOW_MAX)
        return false;
    if (header->unknown >= header->vocabulary &&
        (header->unknown != LM_TEXT_NO_ID || header->model != LM_TEXT_BPE))
        return false;
    if (header->model == LM_TEXT_UNIGRAM && header->scores.count != header->vocabulary)
        return false;
    if (header->bytes.count != (header->flags & with_bytes ? 256 : 0)) return false;
    const bool may_lack = !(header->model == LM_TEXT_BPE && header->flags & LM_TEXT_BYTE_FALLBACK);
    for (uint32_t b = 0; b < header->bytes.count; b++)
        if (tokenizer->bytes[b] >= header->vocabulary &&
            !(may_lack && tokenizer->bytes[b] == LM_TEXT_NO_ID))
            return false;
    for (uint32_t t = 0; t < header->tokens.count; t++)
        if (tokenizer->tokens[t].id >= header->vocabulary) return false;
    return merges_are_right(tokenizer);
}

static bool names_are_right(const struct lm_tokenizer *tokenizer) {
    const struct lm_text_header *header = tokenizer->header;
    uint32_t before = 0;
    if (header->name_ends.count != header->vocabulary || header->decoder >= LM_TEXT_DECODERS ||
        header->special.count != (header->vocabulary + 31) / 32)
        return false;
    for (uint32_t id = 0; id < header->vocabulary; id++) {
        if (tokenizer->name_ends[id] < before) return false;
        before = tokenizer->name_ends[id];
    }
    return before <= header->names.count;
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
    return true;
}

const char *lm_text_file_wrong(const struct lm_tokenizer *tokenizer) {
    if (!stages_are_right(tokenizer)) return "what a code point becomes";
    if (!splits_are_right(tokenizer)) return "how a text is split";
    if (!nodes_are_right(tokenizer) || !models_are_right(tokenizer)) return "its vocabulary";
    if (!names_are_right(tokenizer)) return "the names of its tokens";
    if (!items_are_right(tokenizer)) return "what is put around texts";
    return NULL;
}
