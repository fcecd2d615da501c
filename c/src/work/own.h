/* own.h: requests that an I/O thread runs itself, since their Runs are shorter than a hand-over
 * (flow/submit.c chooses them). I/O thread only.
 *
 * Others wait meanwhile, so one Run that computes for longer than LM_LONG_RUN_NS ends this for its
 * model: a word of the model, which no shorter Run takes back. What counts is what the thread
 * computed. A Run during which the kernel gave the core to another thread says nothing of its
 * model.
 */
#ifndef LM_WORK_OWN_H
#define LM_WORK_OWN_H

#include "flow/state.h"

/* Runs requests for a turn's share of time. The others wait for the next turn: bodies and replies
 * come first. */
void lm_own_run(struct lm_io *io);

#endif
