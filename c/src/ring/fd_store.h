/* fd_store.h: keeps sockets without a descriptor each, in the file tables of rings that do nothing
 * else. Where a process may have fewer descriptors than connections, the idle ones wait here.
 *
 * A table may have as many entries as the process may have descriptors, and there may be many
 * tables. Used by one I/O thread. Needs IORING_OP_FIXED_FD_INSTALL (Linux 6.8).
 */
#ifndef LM_RING_FD_STORE_H
#define LM_RING_FD_STORE_H

#include <stdint.h>

struct lm_fd_store; /* opaque */

/* For indices below `capacity`; takes at most so many descriptors itself. Returns 0,
 * LUMEN_E_UNSUPPORTED with the cause, LUMEN_E_NOMEM. */
int lm_fd_store_open(struct lm_fd_store **store_out, uint32_t capacity, uint32_t most);
void lm_fd_store_close(struct lm_fd_store *store);

/* Keeps what `fd` stands for, also when it is closed. 0 or a negative errno. */
int lm_fd_store_put(struct lm_fd_store *store, uint32_t index, int fd);
/* A new descriptor of what is kept, which stays. Negative errno: as a rule none is free (EMFILE).
 */
int lm_fd_store_get(struct lm_fd_store *store, uint32_t index);
void lm_fd_store_drop(struct lm_fd_store *store, uint32_t index);

#endif
