/* bulk.h: requests of many texts, between the workers that read them and the threads that run their
 * texts (work/bulk.h). A request has a token for each thread that may help with it; a thread takes
 * the request's texts one by one, and who gives back the last token answers.
 */
#ifndef LM_FLOW_BULK_H
#define LM_FLOW_BULK_H

#include "parts/queue_mpmc.h"
#include "parts/waitset.h"

/* Of the server. Written by the control thread before the others start, but for the queue and the
 * waitset. */
struct lm_bulk {
    struct lm_mpmc tokens; /* of lm_job_pack(io, slot) */
    struct lm_waitset waitset;
    uint32_t count;     /* threads; 0: none, and workers run all texts themselves */
    uint32_t answerers; /* all workers and these, which come last */
};

/* Of a request, whoever has a token of it. */
struct lm_bulk_share {
    bool is_whole; /* the places of its answers are not known before: one thread runs all texts */
    const uint32_t *starts; /* of each text, and of its second one, in the inputs' strings */
    lm_atomic_u64 next;     /* the first text that nobody has taken */
    lm_atomic_u64 tokens;   /* that are not back yet */
    lm_atomic_u32 failed;   /* 1: some text cannot be answered; `code` says why */
    int code;               /* of who was the first to fail; its sentence is the request's `why` */
};

#endif
