/* pattern.h: regular expressions of pre-tokenizers: alternatives in their order, as many chars as
 * possible, back where that leads nowhere. Any thread.
 */
#ifndef LM_TEXT_PATTERN_H
#define LM_TEXT_PATTERN_H

#include "text/file.h"

/* Where it is looked for: a piece, which is UTF-8. */
struct lm_pattern {
    const struct lm_tokenizer *tokenizer;
    uint32_t op; /* its first one */
    const uint8_t *end;
};

/* The next match from `at` on: sets where it begins; returns where it ends, or NULL. */
const uint8_t *lm_pattern_search(const struct lm_pattern *pattern, const uint8_t *at,
                                 const uint8_t **begin_out);

#endif
