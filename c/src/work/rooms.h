/* rooms.h: jobs of models that run in processes of their own, and the places that their workers
 * take there (models/process_room.h). Worker only.
 */
#ifndef LM_WORK_ROOMS_H
#define LM_WORK_ROOMS_H

#include "work/state.h"

/* The rooms that a worker is in, while it serves some jobs. */
struct lm_rooms {
    struct lm_process_room *in[LM_BATCH_MAX];
    uint32_t count;
    uint32_t first; /* of the jobs that need a place; those before it must not wait for these */
};

/* Takes a place for each job that needs one, and puts these behind the others; leaves out jobs that
 * have none, and wait. Returns how many are left. */
uint32_t lm_rooms_enter(struct lm_worker *worker, struct lm_rooms *rooms, uint32_t *jobs,
                        uint32_t count);
/* The jobs are served. Gives the places back; jobs that waited for these go to the line. Returns
 * how many of them did not fit there, and come next. */
uint32_t lm_rooms_leave(struct lm_worker *worker, struct lm_rooms *rooms, uint32_t *jobs);

#endif
