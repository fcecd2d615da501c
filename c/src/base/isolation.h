/* isolation.h: what keeps other programs away from the server's threads and memory: real-time
 * priority, with a guard for everybody else, and locked memory. Each is a wish that a machine may
 * refuse; the server then runs without.
 */
#ifndef LM_BASE_ISOLATION_H
#define LM_BASE_ISOLATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one thread, which alone uses it. A real-time thread runs before every ordinary one for as long
 * as it likes. So one that has not slept for LM_REAL_TIME_NS steps down to be ordinary, until it
 * has slept again; what it does meanwhile, such as one long Run, the kernel's own bound ends
 * (kernel.sched_rt_runtime_us), without which no thread gets the priority. */
struct lm_real_time {
    uint32_t priority; /* of SCHED_FIFO; 0: the thread is ordinary for good */
    bool lowered;      /* at the moment */
    int refused;       /* 0, or the errno of the refusal at start */
    uint64_t next_look_ns;
    uint64_t sleeps; /* up to the last look */
};

/* Control thread, at start. Whether threads may have a real-time priority at all: the kernel bounds
 * them. `root` is where /proc is found. */
bool lm_real_time_is_bounded(const char *root);
/* The calling thread gets the priority, where it may; 0: it does not want one. */
void lm_real_time_begin(struct lm_real_time *thread, uint32_t priority);
/* Steps down or up again, whatever is due. */
void lm_real_time_look(struct lm_real_time *thread, uint64_t now_ns);
/* The same between two tasks: a comparison, as a rule. */
static inline void lm_real_time_check(struct lm_real_time *thread, uint64_t now_ns) {
    if (thread->priority && now_ns >= thread->next_look_ns) lm_real_time_look(thread, now_ns);
}

/* Control thread: no page of the process that is in memory leaves it, nor one that comes later.
 * Returns 0, or a negative errno with the sentence of the refusal and its cure. */
int lm_memory_lock(char *why, size_t capacity);
void lm_memory_unlock(void);
/* Bytes that may be locked, which all processes of a user share; UINT64_MAX: without a bound. */
uint64_t lm_memory_lockable(void);

#endif
