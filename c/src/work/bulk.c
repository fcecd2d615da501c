/* bulk.c: see bulk.h. */
#include "work/bulk.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/topology.h"
#include "flow/carrier.h"
#include "flow/threads.h"
#include "models/layout.h"
#include "models/text_model.h"
#include "work/worker_open.h"

/* ---- handing a request over ---- */

static uint32_t next_start(const uint8_t *strings, uint32_t start) {
    uint32_t bytes;
    memcpy(&bytes, strings + start, sizeof bytes);
    return start + (uint32_t)sizeof bytes + bytes;
}

/* Where each text begins: they are taken in any order. false: there is no memory for that. */
static bool find_starts(struct lm_request *request) {
    const struct lm_layout *layout = &request->layout;
    const uint32_t inputs = request->model->input_count, rows = request->sizes.rows;
    const size_t bytes = (size_t)rows * inputs * sizeof(uint32_t);
    void *memory = lm_slot_alloc(request->slot, bytes);
    if (!memory &&
        lm_spill_take(&request->io->shared->spills, &request->spills, bytes, &memory) != 0)
        return false;
    uint32_t *starts = memory;
    for (uint32_t i = 0; i < inputs; i++) {
        uint32_t at = 0;
        for (uint32_t row = 0; row < rows; row++) {
            starts[row * inputs + i] = at;
            at = next_start(layout->inputs[i], at);
        }
    }
    request->share.starts = starts;
    return true;
}

/* Long texts that are read to their end, of which a Run takes the first tokens alone. */
static bool reads_long_texts(const struct lm_request *request) {
    const struct lm_text_ask ask = lm_request_text_ask(request);
    return (ask.runs_nothing || ask.cuts_start) && request->payload_bytes > LM_BULK_BYTES;
}

/* Whether it gives way to others: it has many texts, unless its client says something else; or much
 * to read, whatever its client says. */
static bool gives_way(const struct lm_request *request) {
    enum lm_texts_turn turn = (enum lm_texts_turn)request->turn_wanted;
    if (turn == LM_TURN_BOUND || reads_long_texts(request)) return true;
    if (request->encoding == LM_ENCODING_TEXTS && request->asked->texts.turn != LM_TURN_BY_NUMBER)
        turn = (enum lm_texts_turn)request->asked->texts.turn;
    const uint32_t most = turn == LM_TURN_FIRST ? LM_FIRST_TEXTS_MAX + 1 : LM_BULK_TEXTS;
    return turn == LM_TURN_BULK || request->sizes.rows >= most;
}

bool lm_bulk_take(struct lm_worker *worker, uint32_t job) {
    struct lm_bulk *bulk = &worker->shared->bulk;
    struct lm_request *request = lm_worker_request(worker, job);
    struct lm_bulk_share *share = &request->share;
    if (!request->model->text || !gives_way(request) || bulk->count == 0 ||
        lm_carrier_of(request)->has_places)
        return false;
    share->is_whole = !lm_request_is_in_place(request);
    if (!share->is_whole && !find_starts(request)) return false;
    const uint32_t rows = share->is_whole ? 1 : request->sizes.rows;
    const uint32_t wanted = rows < bulk->count ? rows : bulk->count;
    /* relaxed, all: shown by the push of a token */
    lm_store_relaxed_u64(&share->next, 0);
    lm_store_relaxed_u32(&share->failed, 0);
    lm_store_relaxed_u64(&share->tokens, wanted);
    share->code = 0;
    request->preprocessed_ns = lm_now_ns();
    request->why[0] = '\0';
    uint32_t pushed = 0;
    while (pushed < wanted && lm_mpmc_push(&bulk->tokens, job)) pushed++;
    for (uint32_t t = 0; t < pushed; t++) (void)lm_waitset_wake_one(&bulk->waitset);
    if (pushed == 0) return false; /* too many wait: the worker runs it */
    /* B1: acq_rel: as in work, for the tokens that found no place; pairs with B1 */
    if (pushed < wanted && lm_sub_acq_rel_u64(&share->tokens, wanted - pushed) == wanted - pushed)
        worker->finish(worker, job);
    return true;
}

/* ---- running its texts ---- */

/* Nobody waits for the answer, or the server ends. */
static bool is_over(const struct lm_worker *worker, const struct lm_request *request) {
    const struct lm_connection *connection = lm_io_connection(request->io, request->connection);
    /* relaxed, both: missing one costs a Run, nothing else */
    return lm_load_relaxed_u32(&connection->gone) ||
           lm_load_relaxed_u32(&worker->shared->workers_stop) ||
           lm_load_relaxed_u32(&request->claim) || lm_now_ns() >= request->deadline_ns;
}

static void fail(struct lm_request *request, int code, const char *why) {
    struct lm_bulk_share *share = &request->share;
    /* B2: acq_rel: one alone writes them; they are shown with its token; pairs with B2 */
    if (lm_exchange_acq_rel_u32(&share->failed, 1) != 0) return;
    share->code = code;
    lm_request_set_why(request, why);
}

static int run_text(struct lm_worker *worker, const struct lm_request *request, uint32_t row) {
    const struct lm_model *model = request->model;
    const uint32_t *starts = request->share.starts + (size_t)row * model->input_count;
    const struct lm_text_run run = {.ort = &worker->shared->ort,
                                    .session = model->sessions[lm_worker_session(worker, model)],
                                    .worker = worker->index,
                                    .first = row,
                                    .rows = 1,
                                    .ask = lm_request_text_ask(request)};
    void *inputs[LM_TENSORS_MAX], *outputs[2];
    for (uint32_t i = 0; i < model->input_count; i++)
        inputs[i] = (uint8_t *)request->layout.inputs[i] + starts[i];
    outputs[0] = (float *)request->layout.outputs[0] + (size_t)row * model->text->values;
    outputs[1] = (int32_t *)request->layout.outputs[1] + row;
    return lm_text_run_in_place(model->text, &run, inputs, outputs);
}

static void work(struct lm_worker *worker, uint32_t job) {
    struct lm_request *request = lm_worker_request(worker, job);
    struct lm_bulk_share *share = &request->share;
    /* There are as many as workers: with many of them the last ones do without. */
    const uint32_t arena = worker->index < LM_RUNNERS_MAX ? worker->index : UINT32_MAX;
    while (!share->is_whole) {
        /* relaxed, both: a number for each taker; a failure that is not seen costs a Run */
        uint64_t row = lm_count_relaxed_u64(&share->next, 1);
        if (row >= request->sizes.rows || lm_load_relaxed_u32(&share->failed)) break;
        if (is_over(worker, request)) {
            fail(request, LUMEN_E_STATE, "");
            break;
        }
        lm_run_arena_enter(&worker->shared->run_arenas, arena);
        int code = run_text(worker, request, (uint32_t)row);
        (void)lm_run_arena_leave();
        if (code) fail(request, code, lm_error_last());
    }
    /* B1: acq_rel: the last one sees what the others wrote; pairs with B1 */
    if (lm_sub_acq_rel_u64(&share->tokens, 1) == 1) worker->finish(worker, job);
}

/* ---- the thread ---- */

/* The next token; false: the server ends. */
static bool next_token(struct lm_worker *worker, uint32_t *job_out) {
    struct lm_bulk *bulk = &worker->shared->bulk;
    const uint32_t seat = worker->index - worker->shared->worker_count;
    for (;;) {
        if (lm_mpmc_pop(&bulk->tokens, job_out)) return true;
        lm_waitset_prepare(&bulk->waitset, seat, lm_now_ns());
        bool found = lm_mpmc_pop(&bulk->tokens, job_out);
        /* as E3 in work/jobs.c */
        bool stops = lm_load_acquire_u32(&worker->shared->workers_stop);
        if (found || stops) {
            lm_waitset_cancel(&bulk->waitset, seat);
            return found;
        }
        lm_waitset_sleep(&bulk->waitset, seat, UINT64_MAX);
    }
}

void *lm_bulk_main(void *argument) {
    struct lm_worker *worker = argument;
    struct lm_shared *shared = worker->shared;
    uint32_t job;
    char name[16];
    snprintf(name, sizeof name, "lumen-b/%u", worker->index - shared->worker_count);
    pthread_setname_np(pthread_self(), name);
    worker->stats->head.tid = (int32_t)syscall(SYS_gettid);
    worker->start_code = lm_worker_open_bulk(worker);
    if (worker->start_code) snprintf(worker->note, sizeof worker->note, "%s", lm_error_last());
    lm_thread_meet(shared);
    lm_thread_give_way();
    while (next_token(worker, &job)) work(worker, job);
    lm_thread_ended(shared, LUMEN_ROLE_WORKER);
    return NULL;
}
