/* unigram.h: the model Unigram: of all ways to cut a piece into tokens the one with the greatest
 * sum of scores (Viterbi), in the order and the precision in which the wheel `tokenizers` adds them
 * up. Of one reading, on its thread.
 */
#ifndef LM_TEXT_UNIGRAM_H
#define LM_TEXT_UNIGRAM_H

#include "text/reading.h"

size_t lm_text_unigram_room(uint32_t window); /* bytes, for a window of so many */
void lm_text_unigram(struct lm_text_reading *reading, uint32_t from, uint32_t to);

#endif
