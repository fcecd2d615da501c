/* answer_look.h: looks requests up in the response cache (answer_cache.h), and answers those that
 * it knows. I/O thread only.
 */
#ifndef LM_FLOW_ANSWER_LOOK_H
#define LM_FLOW_ANSWER_LOOK_H

#include "flow/state.h"

/* Answers the waiting requests that are known, for a turn's share of time; the others go to the
 * workers. */
void lm_answers_run(struct lm_io *io);

#endif
