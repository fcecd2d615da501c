/* submit.c: see submit.h. */
#include "flow/submit.h"

#include "base/clock.h"
#include "base/error.h"
#include "flow/answer_cache.h"
#include "flow/estimate.h"
#include "flow/pictures.h"
#include "flow/shadow.h"
#include "models/run_place.h"

/* Pushes what is ready, in order. The queue has a place for every slot, and can refuse a push all
 * the same while a worker is stopped in the middle of a pop (docs/CONCURRENCY.md): what is refused
 * waits here for the next turn of the loop. */
void lm_submit_hand_over(struct lm_io *io) {
    uint32_t job;
    while (lm_spsc_peek(&io->ready, &job) && lm_queue_push(&io->line->queue, job)) {
        (void)lm_spsc_pop(&io->ready, &job);
        if (io->line->workers_sleep) lm_node_wake_worker(io->node);
    }
}

/* Whether the request's bytes are few enough for this thread, whatever the estimate says. */
static bool is_small(const struct lm_request *request) {
    bool is_text = lm_encoding_is_text(request->encoding) || request->model->string_inputs > 0;
    uint64_t most = is_text ? LM_OWN_TEXT_BYTES : LM_OWN_BODY_BYTES;
    if (lm_carrier_of(request)->is_shared || lm_carrier_of(request)->is_coded) return false;
    return request->payload_bytes <= most && request->pixels != LM_PIXELS_UNKNOWN;
}

/* Whether this thread runs the request itself. */
static bool is_own(const struct lm_io *io, const struct lm_request *request) {
    if (!io->inline_worker) return false;
    if (io->node->thread_count == 0) return true;
    switch ((enum lumen_run)request->model->run) {
    case LUMEN_RUN_INLINE: return true;
    case LUMEN_RUN_WORKER: return false;
    case LUMEN_RUN_AUTO: break;
    }
    if (!io->by_time || lm_model_long_run_us(request->model)) return false;
    return is_small(request) && lm_estimate_is_short(io, request);
}

void lm_submit(struct lm_io *io, struct lm_connection *connection, struct lm_request *request) {
    connection->in.receiving = LM_NO_SLOT;
    connection->in.read_state = LM_READ_HEADER;
    connection->close_after_reply = request->last;
    connection->in_flight++;
    if (lm_encoding_is_image(request->encoding)) {
        lm_estimate_suspend(io, request); /* it was charged by its bytes */
        lm_pictures_measure(request);
    } else if (request->model->input_plan.has_images &&
               (request->encoding == LM_ENCODING_ROWS ||
                (request->encoding == LM_ENCODING_JSON &&
                 (request->body.json_bytes >= 0 || lm_carrier_of(request)->is_coded)))) {
        request->pixels = LM_PIXELS_UNKNOWN; /* its worker reads whether they are pictures */
    }
    lm_estimate_resume(io, request);
    /* It is run beside the workers (work/bulk.h): who comes after it does not wait for it. */
    if (request->model->text && io->shared->bulk.count && request->payload_bytes > LM_BULK_BYTES)
        lm_estimate_suspend(io, request);
    request->with_worker = true;
    lm_add_single_writer_u64(&io->stats->models[request->model->index].io.model_queued, 1);
    request->received_ns = lm_now_ns();
    if (io->access->traffic.count) lm_shadow_choose(io, request);
    if (!lm_answers_take(io, request)) lm_submit_run(io, request);
}

void lm_submit_run(struct lm_io *io, struct lm_request *request) {
    /* relaxed: a count, guards nothing; gate.c looks at it, worker.c takes it off again */
    if (request->model->max_queued)
        (void)lm_count_relaxed_u64(&io->shared->queued[request->model->index], 1);
    /* Never full: there is a place for every slot. */
    bool own = is_own(io, request);
    bool kept =
        lm_spsc_push(own ? &io->own : &io->ready, lm_job_pack(io->index, request->slot->index));
    LM_ASSERT(kept);
    if (!own) lm_submit_hand_over(io);
}
