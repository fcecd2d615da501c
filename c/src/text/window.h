/* window.h: normalised text, of which as much is split together as a window holds. It is cut before
 * a blank behind a word, where every pattern has a border (lumen_uring/text/patterns.py sees to
 * that); only a word of more than a window is cut itself. Of one reading, on its thread.
 */
#ifndef LM_TEXT_WINDOW_H
#define LM_TEXT_WINDOW_H

#include "text/reading.h"

void lm_text_window_put(struct lm_text_reading *reading, struct lm_text_char given);
void lm_text_window_end(struct lm_text_reading *reading);

#endif
