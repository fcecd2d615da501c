/* submit.c: see submit.h. */
#include "flow/submit.h"

#include "base/clock.h"
#include "base/error.h"
#include "flow/estimate.h"

/* Pushes what is ready, in order. The queue has a place for every slot, and can refuse a push all
 * the same while a worker is stopped in the middle of a pop (docs/CONCURRENCY.md): what is refused
 * waits here for the next turn of the loop. */
void lm_submit_hand_over(struct lm_io *io) {
    uint32_t job;
    while (lm_spsc_peek(&io->ready, &job) && lm_queue_push(&io->node->queue, job)) {
        (void)lm_spsc_pop(&io->ready, &job);
        if (io->node->workers_sleep) lm_waitset_wake_one(&io->node->waitset);
    }
}

void lm_submit(struct lm_io *io, struct lm_connection *connection, struct lm_request *request) {
    connection->in.receiving = LM_NO_SLOT;
    connection->in.read_state = LM_READ_HEADER;
    connection->close_after_reply = request->last;
    connection->in_flight++;
    lm_estimate_resume(io, request);
    request->with_worker = true;
    lm_add_single_writer_u64(&io->stats->io.model_queued[request->model->index], 1);
    request->received_ns = lm_now_ns();
    /* Never full: there is a place for every slot. */
    bool kept = lm_spsc_push(&io->ready, lm_job_pack(io->index, request->slot->index));
    LM_ASSERT(kept);
    if (!io->inline_worker) lm_submit_hand_over(io);
}
