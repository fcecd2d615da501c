/* world.h: the stand-ins for what the sources under test wait in; see world.c. The sources' calls
 * are renamed on the compiler's command line (world_names.h).
 */
#ifndef TESTS_MODELS_WORLD_H
#define TESTS_MODELS_WORLD_H

#include <pthread.h>
#include <time.h>

#include "ring/ring.h"

/* The ring's time limits count: a wait with one ends when no thread can go on. Set by scenarios. */
extern bool world_ticks;
void world_reset(void);
/* Given by the scenario: operations of the ring that have completed. */
uint32_t world_completions(struct lm_completion *completions, uint32_t capacity);

long model_syscall(long number, ...);
int model_clock_gettime(clockid_t clock, struct timespec *now_out);
int model_mutex_lock(pthread_mutex_t *mutex);
int model_mutex_unlock(pthread_mutex_t *mutex);
int model_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int model_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                         const struct timespec *until);
int model_cond_signal(pthread_cond_t *condition);
int model_cond_broadcast(pthread_cond_t *condition);
ssize_t model_sendmsg(int fd, const struct msghdr *message, int flags); /* the scenario's */

#endif
