/* shadow_jobs.h: copies of requests, and their way to the thread that runs them and back
 * (shadow.h). Who holds the request's slot has its copy.
 */
#ifndef LM_FLOW_SHADOW_JOBS_H
#define LM_FLOW_SHADOW_JOBS_H

#include "parts/queue_mpmc.h"
#include "parts/queue_spsc.h"
#include "parts/waitset.h"

/* How a copy of a request ended. */
enum lm_shadow_end { LM_SHADOW_DONE, LM_SHADOW_FAILED, LM_SHADOW_UNFIT, LM_SHADOW_SKIPPED };

/* A copy, of its request. */
struct lm_shadow_run {
    const struct lm_model *model; /* that version; NULL: there is no copy */
    enum lm_shadow_end end;
    uint32_t rows_apart;
    uint64_t cpu_ns;
    double difference;
};

/* The thread may be stopped anywhere for long: slots have ways back of their own, on which it hides
 * none that a worker gives back. */
struct lm_shadow_jobs {
    struct lm_mpmc queue;                         /* of lm_job_pack(io, slot) */
    struct lm_spsc returns[LUMEN_IO_THREADS_MAX]; /* of slots, to each I/O thread */
    struct lm_waitset waitset;
    lm_atomic_u32 is_open; /* 1: the thread takes some; set once, by the control thread */
};

#endif
