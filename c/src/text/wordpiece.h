/* wordpiece.h: BERT's model: a word is cut into the longest pieces of the vocabulary. The direct
 * way goes over a text once: what a code point becomes, and whether it ends a word, is one look-up.
 * Of one reading, on its thread.
 */
#ifndef LM_TEXT_WORDPIECE_H
#define LM_TEXT_WORDPIECE_H

#include "text/reading.h"

/* A piece of the window. */
void lm_text_wordpiece(struct lm_text_reading *reading, uint32_t from, uint32_t to);

/* The direct way: reads from `at` on, which is below `end`, at least one code point, up to a byte
 * that an added token may begin with. Returns where it stopped; NULL: this is no UTF-8. */
const uint8_t *lm_text_direct(struct lm_text_reading *reading, const uint8_t *at,
                              const uint8_t *end);
/* The end of a word. */
void lm_text_direct_end(struct lm_text_reading *reading);

#endif
