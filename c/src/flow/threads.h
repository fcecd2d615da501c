/* threads.h: what each thread of a server does at its start and as its last act. */
#ifndef LM_FLOW_THREADS_H
#define LM_FLOW_THREADS_H

#include "flow/state.h"

/* Called by each thread when it is set up: waits for all others, and for the control thread's word.
 */
void lm_thread_meet(struct lm_shared *shared);
/* Called by each thread as its last act; the last I/O thread lets the workers go. */
void lm_thread_ended(struct lm_shared *shared, uint32_t role);

#endif
