/* bpe.h: the model BPE: a piece begins as its chars or bytes, and the neighbours of the lowest rank
 * become one token, the leftmost first, until none are left. Of one reading, on its thread.
 */
#ifndef LM_TEXT_BPE_H
#define LM_TEXT_BPE_H

#include "text/reading.h"

size_t lm_text_bpe_room(uint32_t window); /* bytes, for a window of so many */
void lm_text_bpe(struct lm_text_reading *reading, uint32_t from, uint32_t to);

#endif
