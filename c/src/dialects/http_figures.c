/* http_figures.c: see http_figures.h. */
#include "dialects/http_figures.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "formats/http_page.h"
#include "work/state.h"

enum {
    NUMBER_BYTES_MAX = 21, /* of 64 bits, and a comma */
    MODEL_BYTES_MAX = 256 + (LM_MODEL_HISTOGRAM_BUCKETS + 8) * NUMBER_BYTES_MAX +
        LM_NAME_BYTES_MAX * LM_JSON_ESCAPE_MAX,
    FRAME_BYTES_MAX = 128
};

size_t lm_http_figures_bytes_max(uint32_t model_count) {
    return FRAME_BYTES_MAX + (size_t)model_count * MODEL_BYTES_MAX;
}

/* One model's, over all threads. */
struct figures {
    uint64_t answered;
    uint64_t failed;
    uint64_t refused;
    uint64_t queue_ns;
    uint64_t infer_ns;
    uint64_t latency[LM_MODEL_HISTOGRAM_BUCKETS];
};

/* relaxed: counters of other threads, each read whole */
static void add_stages(struct figures *figures, const struct lm_stats_block *stats,
                       uint32_t model) {
    const struct lm_model_histogram *stages = stats->models[model].stages;
    figures->queue_ns += lm_load_relaxed_u64(&stages[LM_MODEL_STAGE_QUEUE].sum_ns);
    figures->infer_ns += lm_load_relaxed_u64(&stages[LM_MODEL_STAGE_INFER].sum_ns);
    for (uint32_t b = 0; b < LM_MODEL_HISTOGRAM_BUCKETS; b++)
        figures->latency[b] += lm_load_relaxed_u64(&stages[LM_MODEL_STAGE_TOTAL].buckets[b]);
}

static void sum(const struct lm_shared *shared, uint32_t model, struct figures *figures) {
    *figures = (struct figures){0};
    /* relaxed: counters of other threads, each read whole */
    for (uint32_t i = 0; i < shared->io_count; i++) {
        const struct lm_stats_block *stats = shared->ios[i].stats;
        figures->refused += lm_load_relaxed_u64(&stats->models[model].io.model_refused) +
                            lm_load_relaxed_u64(&stats->models[model].io.model_unfit) +
                            lm_load_relaxed_u64(&stats->models[model].io.model_bad);
        figures->answered += lm_load_relaxed_u64(&stats->models[model].io.model_ok);
        figures->failed += lm_load_relaxed_u64(&stats->models[model].io.model_failed);
        add_stages(figures, stats, model);
    }
    for (uint32_t w = 0; w < shared->bulk.answerers; w++) {
        if (!lm_worker_is_there(&shared->workers[w])) continue;
        const struct lm_stats_block *stats = shared->workers[w].stats;
        figures->answered += lm_load_relaxed_u64(&stats->models[model].worker.model_ok);
        figures->failed += lm_load_relaxed_u64(&stats->models[model].worker.model_failed);
        figures->refused += lm_load_relaxed_u64(&stats->models[model].worker.model_expired) +
                            lm_load_relaxed_u64(&stats->models[model].worker.model_unfit);
        add_stages(figures, stats, model);
    }
}

static size_t write_model(const char *name, const struct figures *figures, char *text,
                          size_t room) {
    size_t used = (size_t)snprintf(text, room, "{\"name\":\""), escaped = 0;
    (void)lm_json_escape(name, strlen(name), text + used, room - used, &escaped);
    used += escaped;
    used += (size_t)snprintf(
        text + used, room - used,
        "\",\"answered\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"refused\":%" PRIu64
        ",\"queue_ns\":%" PRIu64 ",\"infer_ns\":%" PRIu64 ",\"latency\":[",
        figures->answered, figures->failed, figures->refused, figures->queue_ns, figures->infer_ns);
    uint32_t count = LM_MODEL_HISTOGRAM_BUCKETS;
    while (count > 0 && figures->latency[count - 1] == 0) count--;
    for (uint32_t b = 0; b < count; b++)
        used += (size_t)snprintf(text + used, room - used, b ? ",%" PRIu64 : "%" PRIu64,
                                 figures->latency[b]);
    return used + (size_t)snprintf(text + used, room - used, "]}");
}

size_t lm_http_figures_write(const struct lm_io *io, char *text, size_t room) {
    const struct lm_shared *shared = io->shared;
    const struct lm_model_set *set = io->models;
    size_t used = (size_t)snprintf(text, room, "{\"sub_bits\":%d,\"unit_bits\":%d,\"models\":[",
                                   LM_MODEL_HISTOGRAM_SUB_BITS, LM_MODEL_HISTOGRAM_UNIT_BITS);
    for (uint32_t m = 0; m < set->count && m < LM_PAGE_MODELS; m++) {
        struct figures figures;
        sum(shared, set->models[m]->index, &figures);
        if (m) text[used++] = ',';
        used += write_model(set->models[m]->name, &figures, text + used, room - used);
    }
    used += (size_t)snprintf(text + used, room - used, "]}");
    LM_ASSERT(used < room); /* lm_http_open has made room for the largest */
    return used;
}
