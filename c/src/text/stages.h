/* stages.h: normalizers: each char goes through the stages one by one; a stage holds back only what
 * may still change. Of one reading, on its thread.
 */
#ifndef LM_TEXT_STAGES_H
#define LM_TEXT_STAGES_H

#include "text/reading.h"

/* The start of a segment, one char more, its end. */
void lm_text_stages_begin(struct lm_text_reading *reading);
void lm_text_stages_put(struct lm_text_reading *reading, struct lm_text_char given);
void lm_text_stages_end(struct lm_text_reading *reading);

#endif
