/* shadow_jobs.h: copies of requests, and how they come to the thread that runs them (shadow.h): I/O
 * threads push, it alone pops. Who holds the request's slot has its copy.
 */
#ifndef LM_FLOW_SHADOW_JOBS_H
#define LM_FLOW_SHADOW_JOBS_H

#include "parts/queue_mpmc.h"
#include "parts/waitset.h"

/* How a copy of a request ended. */
enum lm_shadow_end { LM_SHADOW_DONE, LM_SHADOW_FAILED, LM_SHADOW_UNFIT, LM_SHADOW_SKIPPED };

/* A copy, of its request. */
struct lm_shadow_run {
    const struct lm_model *model; /* that version; NULL: there is no copy */
    bool is_out;                  /* its thread has the slot: the request itself is over */
    enum lm_shadow_end end;
    uint32_t rows_apart;
    uint64_t cpu_ns;
    double difference;
};

struct lm_shadow_jobs {
    struct lm_mpmc queue; /* of lm_job_pack(io, slot) */
    struct lm_waitset waitset;
    lm_atomic_u32 is_open; /* 1: the thread takes some; set once, by the control thread */
};

#endif
