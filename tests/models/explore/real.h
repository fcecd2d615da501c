/* real.h: static functions of the flow sources under a name; real_worker.c and real_io.c
 * include the sources themselves, so that nothing is retold.
 */
#ifndef TESTS_MODELS_REAL_H
#define TESTS_MODELS_REAL_H

#include "work/worker.h"

void real_give_back(struct lm_io *io, uint32_t slot);
void real_drain(struct lm_shared *shared);
void real_look(struct lm_io *io);
void real_take_returns(struct lm_io *io);
int real_wait_for_work(struct lm_io *io, struct lm_completion *completions);

#endif
