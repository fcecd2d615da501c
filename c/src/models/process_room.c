/* process_room.c: see process_room.h.
 *
 * 1. A job goes to the ring before it is counted as waiting: there are at least as many jobs in the
 *    ring as the word says.
 * 2. A job is counted as waiting only while all places are taken, in one step: whoever leaves one
 *    of them sees it, and takes a job along. That job comes for a place later, and leaves again. So
 *    no job waits where nobody is inside or under way.
 *
 * `word` is seq_cst: each step reads and writes it at once, and nothing here is hot enough for
 * less.
 */
#include "models/process_room.h"

#include <sched.h>

#define WAITING_ONE (1ull << 32)

int lm_process_room_open(struct lm_process_room *room, uint32_t jobs) {
    uint32_t capacity = 2;
    while (capacity < jobs) capacity *= 2;
    lm_store_relaxed_u64(&room->word, 0); /* relaxed: no other thread yet */
    return lm_mpmc_open(&room->waiting, capacity);
}

void lm_process_room_close(struct lm_process_room *room) {
    lm_mpmc_close(&room->waiting);
}

/* There is one, or a worker is about to show it. */
static uint32_t pop(struct lm_process_room *room) {
    uint32_t job;
    while (!lm_mpmc_pop(&room->waiting, &job)) sched_yield();
    return job;
}

static void push(struct lm_process_room *room, uint32_t job) {
    /* It has a place for every slot; a worker may be stopped inside of a pop. */
    while (!lm_mpmc_push(&room->waiting, job)) sched_yield();
}

bool lm_process_room_enter(struct lm_process_room *room, uint32_t most, uint32_t *job) {
    uint64_t word = lm_load_seq_cst_u64(&room->word);
    bool is_in_ring = false;
    for (;;) {
        bool has_place = (uint32_t)word < most;
        if ((!has_place || word >= WAITING_ONE) && !is_in_ring) {
            push(room, *job);
            is_in_ring = true;
        }
        /* seq_cst: who waits is decided in one step; the job itself crosses with the ring */
        if (!lm_cas_seq_cst_u64(&room->word, &word, word + (has_place ? 1 : WAITING_ONE))) continue;
        if (has_place && is_in_ring) *job = pop(room);
        return has_place;
    }
}

bool lm_process_room_leave(struct lm_process_room *room, uint32_t *job_out) {
    uint64_t word = lm_load_seq_cst_u64(&room->word);
    uint64_t taken;
    do {
        taken = word >= WAITING_ONE ? WAITING_ONE : 0;
    } while (!lm_cas_seq_cst_u64(&room->word, &word, word - 1 - taken)); /* seq_cst: as in enter */
    if (taken) *job_out = pop(room);
    return taken;
}
