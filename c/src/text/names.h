/* names.h: what the tokens of a tokenizer's file (file.h) are called. No state: any thread. */
#ifndef LM_TEXT_NAMES_H
#define LM_TEXT_NAMES_H

#include <stdbool.h>

#include "text/file.h"

/* UTF-8, not terminated. */
struct lm_text_name {
    const uint8_t *at;
    uint32_t bytes;
};

/* A token's name; empty: no token has that id. */
static inline struct lm_text_name lm_text_name_of(const struct lm_tokenizer *tokenizer,
                                                  uint32_t id) {
    const uint32_t start = id ? tokenizer->name_ends[id - 1] : 0;
    return (struct lm_text_name){tokenizer->names + start, tokenizer->name_ends[id] - start};
}

static inline bool lm_text_is_special(const struct lm_tokenizer *tokenizer, uint32_t id) {
    return tokenizer->special[id / 32] >> id % 32 & 1;
}

#endif
