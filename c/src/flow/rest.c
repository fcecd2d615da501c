/* rest.c: see rest.h. A thread that rests sits in a waitset of the I/O threads (node.h). Its two
 * sides are those of the workers' waitset with the roles exchanged: the I/O thread sets its bit and
 * looks at the queue's depth, a worker takes a job and reads the bits. So no wake-up is lost
 * (waitset.h); one that were would cost LM_REST_NS.
 */
#include "flow/rest.h"

#include <time.h>

#include "base/clock.h"

/* An I/O thread that shares its core wins it from a worker whenever bytes arrive. When more arrives
 * than can be served, turning the rest away would leave the workers nothing to run on: after a turn
 * in which it did so it rests as long as it has worked. */
static void make_room(struct lm_io *io, uint64_t woke_ns) {
    uint64_t worked_ns = lm_now_ns() - woke_ns;
    if (worked_ns > LM_MAKE_ROOM_NS_MAX) worked_ns = LM_MAKE_ROOM_NS_MAX;
    io->unseen_ns = 2 * worked_ns;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = (long)worked_ns}, NULL);
}

/* So many queued jobs last the workers until an I/O thread that is woken now has brought more. */
static bool is_enough(struct lm_line *line, uint32_t more) {
    return lm_queue_depth(&line->queue) >= line->workers + more;
}

static bool has_own_work(const struct lm_io *io) {
    return io->draining || io->sweep_at || io->lists[LM_LIST_RESUMING].count ||
           lm_spsc_depth(&io->ready) > 0 || lm_spsc_depth(&io->own) > 0;
}

static bool are_runs_short(const struct lm_io *io) {
    return io->work_ns < io->in_flight * (uint64_t)LM_REST_NS;
}

void lm_rest(struct lm_io *io, uint64_t woke_ns) {
    struct lm_node *node = io->node;
    bool turned_away = io->turned_away;
    io->turned_away = false;
    io->unseen_ns = 0;
    /* relaxed: guards nothing */
    if (turned_away && lm_load_relaxed_u32(&io->shared->io_shares_cores)) {
        make_room(io, woke_ns);
        return;
    }
    struct lm_line *line = io->line;
    if (!line->workers_sleep || !is_enough(line, line->workers) || !are_runs_short(io) ||
        has_own_work(io))
        return;
    uint64_t began_ns = lm_now_ns();
    lm_waitset_prepare(&node->resting, io->index, began_ns);
    if (is_enough(line, 0)) {
        lm_waitset_sleep(&node->resting, io->index, began_ns + LM_REST_NS);
    } else {
        lm_waitset_cancel(&node->resting, io->index);
    }
    io->unseen_ns = lm_now_ns() - began_ns;
}

void lm_rest_end(struct lm_node *node, struct lm_line *line) {
    if (line->workers_sleep && !is_enough(line, 0)) lm_waitset_wake_all(&node->resting);
}
