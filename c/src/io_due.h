/* io_due.h: what an I/O thread does in each turn without a completion, and how long it may sleep
 * for that. Both stand in one table (io_due.c): whoever has work has an entry there, and is not
 * slept over. I/O thread only.
 */
#ifndef LM_IO_DUE_H
#define LM_IO_DUE_H

#include "flow/state.h"

/* Does what is due now. */
void lm_due_run(struct lm_io *io);
/* How long there is nothing to do: 0: something waits for the next turn; UINT64_MAX: until a
 * completion. */
uint64_t lm_due_sleep_ns(const struct lm_io *io);

#endif
