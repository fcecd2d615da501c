/* file.c: see file.h. Whether the spans lie in the file; file_check.c: what lies in them. */
#include "text/file.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "lumen.h"

static const char magic[8] = "LMNTEXT";

static int damaged(const char *what) {
    return lm_error(LUMEN_E_INVALID, "the tokenizer's file is damaged: %s", what);
}

struct part {
    const struct lm_text_span *span;
    const void **at;
    size_t element_bytes, alignment;
};

/* Sets the start of a part, if its elements lie in the file, aligned. */
static bool lies(const struct lm_text_header *header, const struct part *part) {
    const uint64_t end = part->span->offset + (uint64_t)part->span->count * part->element_bytes;
    if (part->span->offset < header->header_bytes || part->span->offset % part->alignment != 0 ||
        end > header->file_bytes)
        return false;
    *part->at = (const char *)header + part->span->offset;
    return true;
}

#define PART(field, size, alignment) \
    {&header->field, (const void **)(void *)&tokenizer->field, (size), (alignment)}

static bool spans_lie(struct lm_tokenizer *tokenizer) {
    const struct lm_text_header *header = tokenizer->header;
    const struct part parts[] = {
        PART(tables, LM_TEXT_BLOCKS * sizeof(uint16_t), 2),
        PART(blocks, LM_TEXT_BLOCK * sizeof(uint32_t), 4),
        PART(pool, 1, 1),
        PART(chars, sizeof *tokenizer->chars, 4),
        PART(children, sizeof *tokenizer->children, 4),
        PART(values, sizeof *tokenizer->values, 4),
        PART(tokens, sizeof *tokenizer->tokens, 4),
        PART(scores, sizeof *tokenizer->scores, 8),
        PART(merges, sizeof *tokenizer->merges, 4),
        PART(bytes, sizeof *tokenizer->bytes, 4),
        PART(stages, sizeof *tokenizer->stages, 4),
        PART(splits, sizeof *tokenizer->splits, 4),
        PART(ops, sizeof *tokenizer->ops, 4),
        PART(groups, sizeof *tokenizer->groups, 4),
        PART(compositions, sizeof *tokenizer->compositions, 4),
        PART(single, sizeof *tokenizer->single, 4),
        PART(pair, sizeof *tokenizer->pair, 4),
        PART(names, 1, 1),
        PART(name_ends, sizeof *tokenizer->name_ends, 4),
        PART(special, sizeof *tokenizer->special, 4),
    };
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        if (!lies(header, &parts[p])) return false;
    return true;
}

int lm_tokenizer_open(struct lm_tokenizer *tokenizer, const void *file, size_t bytes) {
    const struct lm_text_header *header = file;
    if (bytes < sizeof *header || memcmp(header->magic, magic, sizeof magic) != 0)
        return damaged("it does not begin as one");
    if (header->version != LM_TEXT_VERSION || header->header_bytes != sizeof *header)
        return damaged("it is of another version of Lumen");
    if (header->file_bytes != bytes) return damaged("it has another length than it says");
    *tokenizer = (struct lm_tokenizer){.header = header};
    if (!spans_lie(tokenizer)) return damaged("a part lies outside of it");
    const char *wrong = lm_text_file_wrong(tokenizer);
    return wrong ? damaged(wrong) : 0;
}
