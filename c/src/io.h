/* io.h: the I/O thread: its state is set up and taken down here, and its loop turns completions
 * into the life of requests. The thread never runs a model (but with `inline`), never waits for a
 * worker, and allocates nothing once it is ready.
 */
#ifndef LM_IO_H
#define LM_IO_H

#include "flow/state.h"

/* Control thread. `io` is zeroed but for listen_fds. */
int lm_io_open(struct lm_io *io, struct lm_shared *shared, struct lm_node *node, uint32_t index,
               uint32_t connections, const lumen_slot_class *classes, uint32_t class_count);
void lm_io_close(struct lm_io *io);
/* The thread. */
void *lm_io_main(void *io);

#endif
