/* entities.h: from the scores of a text's tokens to what is named in it, by the strategies of
 * Hugging Face's token classification. No state, no allocation: any thread.
 */
#ifndef LM_TEXT_ENTITIES_H
#define LM_TEXT_ENTITIES_H

#include <stdbool.h>
#include <stdint.h>

#include "text/out.h"

/* A class of tokens: B-PER, I-PER, PER or O. */
struct lm_entity_label {
    uint32_t tag; /* the same of B-PER, I-PER and PER */
    bool begins;  /* B-: it never goes on with the entity before */
    bool is_none; /* O: no entity */
};

struct lm_entity_token {
    struct lm_text_place place; /* in the text */
    uint32_t index;             /* among all tokens, special ones too */
    bool goes_on;               /* with the word of the token before */
};

struct lm_entity {
    uint32_t label, index; /* the index: of its first token */
    float score;
    struct lm_text_place place;
};

/* Of so many tokens, each with `label_count` logits, which become their softmax. Writes at most as
 * many entities as there are tokens; returns their number. `strategy`: LUMEN_AGGREGATE_*. */
uint32_t lm_entities_find(const struct lm_entity_label *labels, uint32_t label_count,
                          uint32_t strategy, const struct lm_entity_token *tokens, uint32_t count,
                          float *scores, struct lm_entity *entities);

#endif
