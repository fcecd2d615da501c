/* process_room.h: how many workers may wait in the process of one model at a time. A process that
 * hangs keeps each worker that waits for it, until it is ended; so there is always one that is with
 * other models, where a server has several workers and several models. Requests for which there is
 * no place wait here, in order, with their deadlines, and go back to the line as places come free.
 *
 * Of one node: its workers alone.
 */
#ifndef LM_MODELS_PROCESS_ROOM_H
#define LM_MODELS_PROCESS_ROOM_H

#include "base/atomics.h"
#include "parts/queue_mpmc.h"

struct lm_process_room {
    LM_CACHE_ALIGNED lm_atomic_u64 word; /* workers inside; above 32 bits, jobs that wait */
    struct lm_mpmc waiting;
};

/* Control thread: room for so many jobs. Returns 0 or LUMEN_E_NOMEM. */
int lm_process_room_open(struct lm_process_room *room, uint32_t jobs);
void lm_process_room_close(struct lm_process_room *room);

/* Worker: takes a place for a job, of which there are `most`. true: it has one, and runs the job
 * that is left in `job`, which may be one that has waited for longer. false: the job waits. */
bool lm_process_room_enter(struct lm_process_room *room, uint32_t most, uint32_t *job);
/* Worker: gives its place back. true: a job that waited is the caller's now, for the line. */
bool lm_process_room_leave(struct lm_process_room *room, uint32_t *job_out);

#endif
