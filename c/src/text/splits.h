/* splits.h: pre-tokenizers: each split cuts the pieces of the one before; what is left goes to the
 * model. Of one reading, on its thread.
 */
#ifndef LM_TEXT_SPLITS_H
#define LM_TEXT_SPLITS_H

#include "text/reading.h"

/* The window's bytes from `from` to `to`. */
void lm_text_split_up(struct lm_text_reading *reading, uint32_t from, uint32_t to);

#endif
