/* added.h: added tokens, which are cut out of a text before it is split, and the blanks beside
 * them. No state: any thread.
 */
#ifndef LM_TEXT_ADDED_H
#define LM_TEXT_ADDED_H

#include <stdbool.h>

#include "text/file.h"

/* The longest added token that begins at `at`: its bytes, or 0. `set`: 0 of the raw text, 1 of the
 * normalised one. */
uint32_t lm_text_find_added(const struct lm_tokenizer *tokenizer, uint32_t set, const uint8_t *at,
                            const uint8_t *end, struct lm_text_added *found_out);
/* Whether words beside an added token of single words hide it. `start` to `end` is all that there
 * is. */
bool lm_text_hides(const struct lm_tokenizer *tokenizer, const uint8_t *start, const uint8_t *at,
                   uint32_t bytes, const uint8_t *end);
/* Whether the char before `at` is a blank; none is before `start`. */
bool lm_text_follows_blank(const struct lm_tokenizer *tokenizer, const uint8_t *start,
                           const uint8_t *at);
/* How many bytes of blanks there are at `at`, or before it. */
uint32_t lm_text_blanks(const struct lm_tokenizer *tokenizer, const uint8_t *at,
                        const uint8_t *end);
uint32_t lm_text_blanks_before(const struct lm_tokenizer *tokenizer, const uint8_t *start,
                               const uint8_t *at);

#endif
