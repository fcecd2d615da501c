/* http_stats.c: see http_stats.h. */
#include "dialects/http_stats.h"

#include "base/error.h"
#include "dialects/http_answer.h"
#include "dialects/http_block.h"
#include "flow/refusal.h"
#include "formats/http_page.h"
#include "formats/oip_metadata.h"
#include "models/steps.h"
#include "work/state.h"

#define STATS_AGE_NS 1000000000ull /* of many models */

/* Of a model that an upstream serves: a request is a row and a Run. */
static void add_elsewhere(const struct lm_io_model_counters *from,
                          struct lm_oip_model_stats *stats) {
    const uint64_t ok = lm_load_relaxed_u64(&from->model_ok); /* relaxed: as below, all of them */
    stats->ok += ok;
    stats->rows += ok;
    stats->runs += ok;
    stats->failed += lm_load_relaxed_u64(&from->model_failed);
    stats->ok_ns += lm_load_relaxed_u64(&from->model_ok_ns);
    stats->failed_ns += lm_load_relaxed_u64(&from->model_failed_ns);
    stats->queue_ns += lm_load_relaxed_u64(&from->model_queue_ns);
    stats->infer_ns += lm_load_relaxed_u64(&from->model_infer_ns);
    stats->output_ns += lm_load_relaxed_u64(&from->model_send_ns);
}

/* Sums a model's counters over the threads: each word is read whole, the sum is of the moment. */
static void sum_model(const struct lm_io *io, const struct lm_model *served,
                      struct lm_oip_model_stats *stats) {
    const struct lm_shared *shared = io->shared;
    const uint32_t model = served->index;
    *stats = (struct lm_oip_model_stats){.name = served->base, .version = served->version};
    for (uint32_t w = 0; w < shared->bulk.answerers; w++) {
        if (!lm_worker_is_there(&shared->workers[w])) continue;
        const struct lm_worker_model_counters *from =
            &shared->workers[w].stats->models[model].worker;
        /* relaxed: counters of another thread */
        uint64_t last = lm_load_relaxed_u64(&from->model_last_ms);
        if (last > stats->last_inference_ms) stats->last_inference_ms = last;
        stats->ok += lm_load_relaxed_u64(&from->model_ok);
        stats->failed += lm_load_relaxed_u64(&from->model_failed);
        stats->ok_ns += lm_load_relaxed_u64(&from->model_ok_ns);
        stats->failed_ns += lm_load_relaxed_u64(&from->model_failed_ns);
        stats->queue_ns += lm_load_relaxed_u64(&from->model_queue_ns);
        stats->input_ns += lm_load_relaxed_u64(&from->model_preprocess_ns);
        stats->infer_ns += lm_load_relaxed_u64(&from->model_infer_ns);
        stats->output_ns += lm_load_relaxed_u64(&from->model_send_ns);
        stats->rows += lm_load_relaxed_u64(&from->model_rows);
        stats->runs += lm_load_relaxed_u64(&from->model_runs);
        for (uint32_t b = 0; shared->workers[w].batch_counts && b < LM_BATCH_SIZES; b++) {
            const struct lm_batch_count *count = &shared->workers[w].batch_counts[model][b];
            const struct lm_oip_batch batch = {
                .rows = lm_load_relaxed_u64(&count->rows), /* relaxed: as above, all of them */
                .runs = lm_load_relaxed_u64(&count->runs),
                .input_ns = lm_load_relaxed_u64(&count->input_ns),
                .infer_ns = lm_load_relaxed_u64(&count->infer_ns),
                .output_ns = lm_load_relaxed_u64(&count->output_ns)};
            if (batch.rows == 0) break;
            lm_oip_stats_add_batch(stats, &batch);
        }
    }
    for (uint32_t i = 0; i < shared->io_count; i++) {
        const struct lm_io_model_counters *from = &shared->ios[i].stats->models[model].io;
        /* relaxed: counters of another thread, all of them */
        const uint64_t last = lm_load_relaxed_u64(&from->model_last_ms);
        if (last > stats->last_inference_ms) stats->last_inference_ms = last;
        if (lm_model_is_elsewhere(served)) {
            add_elsewhere(from, stats);
            continue;
        }
        stats->hits += lm_load_relaxed_u64(&from->model_cache_hits);
        stats->misses += lm_load_relaxed_u64(&from->model_cache_misses);
        stats->hits_ns += lm_load_relaxed_u64(&from->model_ok_ns);
        stats->hit_ns += lm_load_relaxed_u64(&from->model_cache_hit_ns);
        stats->miss_ns += lm_load_relaxed_u64(&from->model_cache_miss_ns);
    }
}

/* Runs of a model as a step of ensembles count there too, as in Triton; their time is the
 * ensembles'. */
static void add_steps(const struct lm_io *io, const struct lm_model *served,
                      struct lm_oip_model_stats *stats) {
    const struct lm_shared *shared = io->shared;
    for (uint32_t m = 0; m < io->models->ensemble_count; m++) {
        const struct lm_model *ensemble = io->models->ensembles[m];
        uint64_t times = 0;
        for (uint32_t s = 0; s < ensemble->steps->count; s++)
            times += ensemble->steps->steps[s].model->index == served->index;
        for (uint32_t w = 0; times && w < shared->bulk.answerers; w++) {
            if (!lm_worker_is_there(&shared->workers[w])) continue;
            const struct lm_worker_model_counters *from =
                &shared->workers[w].stats->models[ensemble->index].worker;
            /* relaxed: counters of another thread, all of them */
            uint64_t last = lm_load_relaxed_u64(&from->model_last_ms);
            if (last > stats->last_inference_ms) stats->last_inference_ms = last;
            stats->ok += times * lm_load_relaxed_u64(&from->model_ok);
            stats->rows += times * lm_load_relaxed_u64(&from->model_rows);
            stats->runs += times * lm_load_relaxed_u64(&from->model_runs);
        }
    }
}

static void add_stats(struct lm_io *io, const struct lm_model *model,
                      struct lm_oip_stats_page *page) {
    struct lm_oip_model_stats stats;
    sum_model(io, model, &stats);
    add_steps(io, model, &stats);
    lm_oip_stats_add(page, &stats);
}

/* The model's that was asked for, or those of all its versions; all models' where it is NULL. */
static void write_stats(struct lm_io *io, const struct lm_model *asked, bool all_versions,
                        struct lm_oip_stats_page *page) {
    const struct lm_model_set *set = io->models;
    lm_oip_stats_begin(page);
    for (uint32_t m = 0; !asked && m < set->count; m++) add_stats(io, set->models[m], page);
    if (asked && !all_versions) add_stats(io, asked, page);
    for (const struct lm_model *one = all_versions ? lm_model_set_next(set, asked->base, NULL)
                                                   : NULL;
         one; one = lm_model_set_next(set, asked->base, one))
        add_stats(io, one, page);
    lm_oip_stats_end(page);
    LM_ASSERT(!page->full); /* there is room for the largest */
}

/* The statistics of many models, written at most once a second: it takes a few microseconds a
 * model, which is in the way of all requests. NULL: there is no memory. */
static const char *stats_of_many(struct lm_io *io, size_t *bytes_out) {
    struct lm_http_side *http = io->http;
    const size_t bytes = lm_oip_stats_bytes_max(io->models->count);
    void *memory;
    if (!http->stats || io->now_ns - http->stats_ns >= STATS_AGE_NS) {
        lm_spill_join(&io->spills, &http->stats);
        if (lm_spill_take(&io->shared->spills, &http->stats, bytes, &memory) != 0) return NULL;
        struct lm_oip_stats_page page = {.text = memory, .bytes = bytes};
        write_stats(io, NULL, false, &page);
        http->stats_text = page.text;
        http->stats_bytes = page.used;
        http->stats_ns = io->now_ns;
    }
    *bytes_out = http->stats_bytes;
    return http->stats_text;
}

void lm_http_answer_stats(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    const struct lm_model *asked = lm_model_set_find(io->models, call->model);
    struct lm_http_answer answer = {.code = 200, .body = io->http->draft};
    if (!asked && io->models->count > LM_PAGE_MODELS) {
        answer.body = stats_of_many(io, &answer.body_bytes);
    } else {
        struct lm_oip_stats_page page = {.text = io->http->draft, .bytes = io->http->draft_bytes};
        write_stats(io, asked, asked && call->any_version, &page);
        answer.body_bytes = page.used;
    }
    if (!answer.body) {
        lm_refusal_count(io, LM_STATUS_OVERLOADED, LM_NO_MODEL);
        lm_http_answer_error(io, connection, 503, "Retry-After: 1\r\n", lm_error_last());
        return;
    }
    lm_add_single_writer_u64(&io->stats->io.requests_ok, 1);
    lm_http_answer(io, connection, &answer);
}
