/* team.h: threads that share the parts of one job with the thread that has it: a layer's panels.
 * Between jobs that follow each other closely they look for the next one; then they sleep.
 *
 * Opened and closed by the control thread; one thread at a time runs a job.
 */
#ifndef LM_ENGINE_TEAM_H
#define LM_ENGINE_TEAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"

enum { LM_TEAM_MAX = 63 /* helpers, beside the thread that has the job */ };

struct lm_team;

struct lm_team_helper {
    struct lm_team *team;
    pthread_t thread;
    int32_t tid; /* known when lm_team_open returns */
    uint32_t index;
};

struct lm_team {
    /* Of the job; helpers read them once they have taken one of its parts. */
    void (*part)(void *argument, uint32_t part);
    void *argument;
    uint32_t turn; /* jobs so far */
    bool flush_denormals;
    uint32_t helper_count;
    struct lm_team_helper helpers[LM_TEAM_MAX];
    /* The job's turn, its number of parts, and the first part that nobody has taken. */
    LM_CACHE_ALIGNED lm_atomic_u64 job;
    LM_CACHE_ALIGNED lm_atomic_u64 done;     /* parts of the job */
    LM_CACHE_ALIGNED lm_atomic_u64 sleepers; /* a bit for each helper that is about to sleep */
    lm_atomic_u32 woken;                     /* futex: changes when sleepers have to look */
    lm_atomic_u32 ends;
    lm_atomic_u64 begun; /* helpers whose tid is known */
};

enum { LM_TEAM_PARTS_MAX = 1 << 19 };

/* Starts so many helpers, which flush denormals if they are to. Returns 0 or LUMEN_E_NOMEM; the
 * team stays where it is while it is open. */
int lm_team_open(struct lm_team *team, uint32_t helpers, bool flush_denormals);
void lm_team_close(struct lm_team *team);
/* Calls part(argument, p) for each p below `parts`, once each, here and on the helpers. Returns
 * when all have been called. The parts that no helper takes are this thread's. */
void lm_team_run(struct lm_team *team, void (*part)(void *, uint32_t), void *argument,
                 uint32_t parts);

#endif
