/* spill.h: memory for what a reply has beyond its slot: outputs whose size only their Run tells,
 * and their JSON. Each piece is a mapping of its own, chained to its request, so that memory is
 * used for large replies alone, and only while they are sent.
 *
 * Any thread that composes a reply takes pieces; the I/O thread gives them back, a bounded part at
 * a time. One count bounds the pieces of all threads.
 */
#ifndef LM_PARTS_SPILL_H
#define LM_PARTS_SPILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"

/* The first bytes of a piece. */
struct lm_spill {
    struct lm_spill *next;
    size_t bytes; /* of the mapping, which shrinks while it is given back */
};

struct lm_spill_limit {
    uint64_t bytes_max; /* of all pieces together */
    lm_atomic_u64 bytes;
};

/* `bytes_max` 0: a quarter of the memory that this process may use. */
void lm_spill_open(struct lm_spill_limit *limit, uint64_t bytes_max);
/* Adds a piece to a chain; its memory is aligned to LM_SLOT_ALIGN. Returns 0, LUMEN_E_NOMEM where
 * other answers have too much, or LUMEN_E_ORT where there is never so much. */
int lm_spill_take(struct lm_spill_limit *limit, struct lm_spill **chain, size_t bytes,
                  void **memory_out);
/* Whether so little is left that a client who does not take its reply is in the way of others. */
bool lm_spill_is_short(const struct lm_spill_limit *limit);
/* Adds a chain to another. */
void lm_spill_join(struct lm_spill **chain, struct lm_spill **other);
/* Unmaps at most LM_UNMAP_BYTES of a chain. */
void lm_spill_unmap(struct lm_spill_limit *limit, struct lm_spill **chain);
/* Unmaps all of it. */
void lm_spill_close(struct lm_spill_limit *limit, struct lm_spill **chain);

#endif
