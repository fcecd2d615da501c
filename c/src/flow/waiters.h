/* waiters.h: what an I/O thread knows of its requests that wait for a slot (slots.c, slot_wait.c).
 * I/O thread only.
 */
#ifndef LM_FLOW_WAITERS_H
#define LM_FLOW_WAITERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The connections on LM_LIST_WAITING: each has a request that waits for a slot. */
struct lm_waiters {
    uint64_t due_ns;      /* none has an earlier deadline */
    uint64_t took_ns;     /* when this thread last took a place */
    size_t least_bytes;   /* none needs a smaller slot */
    size_t refused_bytes; /* in this round: a slot so large was not to be had */
    bool no_place;        /* in the last round: max_in_flight was reached */
    bool retrying;        /* a round is under way */
    bool released;        /* a slot, since the last round: it is for those who wait */
};

#endif
