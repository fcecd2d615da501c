/* team.c: see team.h.
 *
 * A part is taken by an addition to `job`, whose result says which job the part is of and whether
 * there was one left. So a helper that comes late takes a part of a job that is not done, or none.
 */
#include "engine/team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/processor.h"
#include "base/topology.h"

enum {
    PART_BITS = 20,
    LOOKS = 3000,       /* of a helper for the next job, some 50 us */
    LOOKS_A_YIELD = 500 /* of the job's thread for a part that a helper has */
};
static const uint64_t part_mask = (1u << PART_BITS) - 1;

static uint64_t parts_of(uint64_t job) {
    return job >> PART_BITS & part_mask;
}

/* Takes a part. Returns false where none is left. */
static bool take(struct lm_team *team, uint32_t *part_out) {
    /* relaxed: only whether to look closer */
    uint64_t seen = lm_load_relaxed_u64(&team->job);
    if ((seen & part_mask) >= parts_of(seen)) return false;
    /* E1: acq_rel: with a part comes what E2 released; pairs with E2 */
    uint64_t job = lm_add_acq_rel_u64(&team->job, 1);
    *part_out = (uint32_t)(job & part_mask);
    return (job & part_mask) < parts_of(job);
}

static void work(struct lm_team *team) {
    uint32_t part;
    while (take(team, &part)) {
        team->part(team->argument, part);
        /* E3: acq_rel: shows what the part wrote to the thread that has the job; pairs with E4 */
        (void)lm_add_acq_rel_u64(&team->done, 1);
    }
}

static void sleep_until_woken(struct lm_team *team, uint32_t index) {
    uint64_t bit = 1ull << index;
    /* relaxed: the kernel compares it again */
    uint32_t woken = lm_load_relaxed_u32(&team->woken);
    /* E5: acq_rel: a job that was shown before E6 is seen below; pairs with E6 */
    (void)lm_or_acq_rel_u64(&team->sleepers, bit);
    /* relaxed, both: E5 shows them */
    uint64_t seen = lm_load_relaxed_u64(&team->job);
    bool idle = (seen & part_mask) >= parts_of(seen) && !lm_load_relaxed_u32(&team->ends);
    if (idle) syscall(SYS_futex, &team->woken, FUTEX_WAIT_PRIVATE, woken, NULL, NULL, 0);
    /* acq_rel: as E5; the word is written by read-modify-writes alone */
    (void)lm_and_acq_rel_u64(&team->sleepers, ~bit);
}

static void wake(struct lm_team *team) {
    /* E6: acq_rel: what was stored before is seen by helpers that come to E5 later; pairs with E5
     */
    if (lm_or_acq_rel_u64(&team->sleepers, 0) == 0) return;
    /* relaxed, both: this thread alone writes it; E6 orders */
    lm_store_relaxed_u32(&team->woken, lm_load_relaxed_u32(&team->woken) + 1);
    syscall(SYS_futex, &team->woken, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *help(void *argument) {
    struct lm_team_helper *helper = argument;
    struct lm_team *team = helper->team;
    char name[16];
    snprintf(name, sizeof name, "lumen-x/%u", (unsigned)helper->index + 1);
    pthread_setname_np(pthread_self(), name);
    helper->tid = lm_thread_id();
    if (team->flush_denormals) (void)lm_processor_flush_denormals();
    (void)lm_thread_set_slice(LM_HELPER_SLICE_NS); /* before Linux 6.12 there are none */
    /* E7: acq_rel: shows the tid; pairs with E8 */
    (void)lm_add_acq_rel_u64(&team->begun, 1);
    uint32_t looks = 0;
    /* relaxed: a helper that sees it late looks again after it has slept */
    while (!lm_load_relaxed_u32(&team->ends)) {
        /* relaxed: as in take */
        uint64_t seen = lm_load_relaxed_u64(&team->job);
        if ((seen & part_mask) < parts_of(seen)) {
            work(team);
            looks = 0;
        } else if (++looks < LOOKS) {
            lm_cpu_relax();
        } else {
            sleep_until_woken(team, helper->index);
            looks = 0;
        }
    }
    return NULL;
}

int lm_team_open(struct lm_team *team, uint32_t helpers, bool flush_denormals) {
    memset(team, 0, sizeof *team);
    team->flush_denormals = flush_denormals;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int problem = 0;
    while (!problem && team->helper_count < helpers && helpers <= LM_TEAM_MAX) {
        struct lm_team_helper *helper = &team->helpers[team->helper_count];
        *helper = (struct lm_team_helper){.team = team, .index = team->helper_count};
        problem = pthread_create(&helper->thread, NULL, help, helper);
        if (!problem) team->helper_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    /* E8: acquire; pairs with E7 */
    while (lm_load_acquire_u64(&team->begun) < team->helper_count) sched_yield();
    if (team->helper_count == helpers) return 0;
    lm_team_close(team);
    return lm_error_errno(LUMEN_E_NOMEM, problem, "cannot start %u threads", helpers);
}

void lm_team_close(struct lm_team *team) {
    /* relaxed: E6, in wake, shows it */
    lm_store_relaxed_u32(&team->ends, 1);
    wake(team);
    for (uint32_t h = 0; h < team->helper_count; h++) pthread_join(team->helpers[h].thread, NULL);
    team->helper_count = 0;
}

void lm_team_run(struct lm_team *team, void (*part)(void *, uint32_t), void *argument,
                 uint32_t parts) {
    LM_DEBUG_ASSERT(parts > 0 && parts <= LM_TEAM_PARTS_MAX);
    team->part = part;
    team->argument = argument;
    /* relaxed: E2 shows it */
    lm_store_relaxed_u64(&team->done, 0);
    uint64_t job = (uint64_t)++team->turn << 2 * PART_BITS | (uint64_t)parts << PART_BITS;
    /* E2: release: the job, for whoever takes a part of it; pairs with E1 */
    lm_store_release_u64(&team->job, job);
    wake(team);
    work(team);
    /* E4: acquire: what the parts wrote; pairs with E3 */
    for (uint32_t looks = 0; lm_load_acquire_u64(&team->done) < parts; looks++) {
        /* A helper whose core was taken may wait for this one. */
        if (looks % LOOKS_A_YIELD == LOOKS_A_YIELD - 1)
            sched_yield();
        else
            lm_cpu_relax();
    }
}
