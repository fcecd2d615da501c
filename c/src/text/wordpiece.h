/* wordpiece.h: BERT's model: a word is cut into the longest pieces of the vocabulary. The direct
 * way goes over a text once: what a code point becomes, and whether it ends a word, is one look-up.
 * Of one reading, on its thread.
 */
#ifndef LM_TEXT_WORDPIECE_H
#define LM_TEXT_WORDPIECE_H

#include "text/reading.h"

/* A piece of the window. */
void lm_text_wordpiece(struct lm_text_reading *reading, uint32_t from, uint32_t to);

/* The direct way: one code point more, which is `bytes` bytes at `at`; the end of a word. */
void lm_text_direct_char(struct lm_text_reading *reading, uint32_t point, const uint8_t *at,
                         uint32_t bytes);
void lm_text_direct_end(struct lm_text_reading *reading);

#endif
