/* world.c: the kernel and the C library, as far as the sources under test wait in them: futex,
 * mutex, condition variable, clock, the ring's wait and wake, sendmsg.
 *
 * A mutex orders what it protects. A futex, a signal and a ring's wake-up order nothing: data must
 * never cross through them.
 */
#include "world.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/limits.h"
#include "flow/answer_cache.h"
#include "flow/timers.h"
#include "machine_inner.h"

enum { MUTEXES_MAX = 4 };

struct mutex {
    const void *address;
    bool held;
    struct machine_knowledge known;
};

static struct mutex mutexes[MUTEXES_MAX];
bool world_ticks;
static uint64_t now_ns;
static uint32_t rings; /* wake-ups that wait in the one ring */

void world_reset(void) {
    memset(mutexes, 0, sizeof mutexes);
    now_ns = 1000;
    rings = 0;
    world_ticks = false;
}

/* A time comes when no thread can go on without it. true: woken before. */
static bool wait_until(const void *on, const struct timespec *until) {
    bool woken = machine_block_until_idle(on);
    uint64_t until_ns = (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec;
    if (!woken && now_ns < until_ns) now_ns = until_ns;
    return woken;
}

/* ---- futex ---- */

long model_syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    const void *word = va_arg(arguments, const void *);
    int operation = va_arg(arguments, int) & ~FUTEX_PRIVATE_FLAG;
    uint32_t value = va_arg(arguments, uint32_t);
    const struct timespec *until = va_arg(arguments, const struct timespec *);
    va_end(arguments);
    if (number != SYS_futex) return -1;
    machine_point("futex");
    if (operation == FUTEX_WAKE) return machine_unblock(word, value);
    /* The kernel compares with the newest value, under the lock that a waker takes too. */
    if ((uint32_t)machine_newest(word, 4) != value) return -1;
    if (until) return wait_until(word, until) ? 0 : -1;
    machine_block(word);
    return 0;
}

int model_clock_gettime(clockid_t clock, struct timespec *now_out) {
    (void)clock;
    now_ns++;
    *now_out = (struct timespec){.tv_nsec = (long)now_ns};
    return 0;
}

/* ---- mutex and condition variable ---- */

static struct mutex *mutex_at(const void *address) {
    for (uint32_t m = 0; m < MUTEXES_MAX; m++) {
        if (!mutexes[m].address) mutexes[m].address = address;
        if (mutexes[m].address == address) return &mutexes[m];
    }
    machine_fail("MUTEXES_MAX is too small");
    return mutexes;
}

int model_mutex_lock(pthread_mutex_t *address) {
    if (!machine_running()) return 0;
    struct mutex *mutex = mutex_at(address);
    machine_point("lock");
    while (mutex->held) machine_block(mutex);
    mutex->held = true;
    machine_join(&machine_known[machine_self()], &mutex->known);
    return 0;
}

static void release(struct mutex *mutex) {
    uint32_t self = machine_self();
    machine_join(&mutex->known, &machine_known[self]);
    machine_known[self].clock.at[self]++;
    mutex->held = false;
    machine_unblock(mutex, UINT32_MAX);
}

int model_mutex_unlock(pthread_mutex_t *address) {
    if (machine_running()) release(mutex_at(address));
    return 0;
}

int model_cond_wait(pthread_cond_t *condition, pthread_mutex_t *address) {
    release(mutex_at(address));
    machine_block(condition);
    return model_mutex_lock(address);
}

int model_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *address,
                         const struct timespec *until) {
    release(mutex_at(address));
    bool woken = wait_until(condition, until);
    model_mutex_lock(address);
    return woken ? 0 : ETIMEDOUT;
}

int model_cond_signal(pthread_cond_t *condition) {
    if (machine_running()) machine_unblock(condition, 1);
    return 0;
}

int model_cond_broadcast(pthread_cond_t *condition) {
    if (machine_running()) machine_unblock(condition, UINT32_MAX);
    return 0;
}

/* ---- the ring, of which there is one ---- */

void lm_ring_wake(struct lm_ring *ring) {
    (void)ring;
    machine_point("ring wake");
    machine_trace("rings");
    rings++;
    machine_unblock(&rings, 1);
}

/* Without world_ticks a limit of more than a moment is "until something happens": nothing may rely
 * on ticks. A moment (LM_STUCK_TICK_NS) is over once the thread it is left for has gone on. */
int lm_ring_wait(struct lm_ring *ring, uint64_t poll_ns, uint64_t timeout_ns,
                 struct lm_completion *completions, uint32_t capacity) {
    (void)ring;
    (void)poll_ns; /* looking before sleeping changes when, not what */
    machine_point("ring wait");
    uint32_t count = world_completions(completions, capacity);
    const uint64_t moment_ns = LM_STUCK_TICK_NS;
    if (count == 0 && rings == 0) {
        if (timeout_ns == 0)
            machine_yield();
        else if (timeout_ns <= moment_ns || (world_ticks && timeout_ns != UINT64_MAX))
            machine_block_until_idle(&rings);
        else
            machine_block(&rings);
    }
    rings = 0;
    return (int)count;
}

void lm_timer_update(struct lm_io *io, const struct lm_connection *connection) {
    (void)io;
    (void)connection; /* no scenario takes so long */
}

/* No request of a scenario asks for its answer to be kept. */
void lm_answers_keep(struct lm_io *io, struct lm_request *request) {
    (void)io;
    (void)request;
}

void lm_address_table_remove(struct lm_address_table *table, uint32_t entry) {
    (void)table;
    (void)entry;
}

void lm_ring_buffer_return(struct lm_ring *ring, int32_t buffer) {
    (void)ring;
    machine_fail("no scenario has a provided buffer, but %d is given back", (int)buffer);
}
