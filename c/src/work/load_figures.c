/* load_figures.c: see load_figures.h. */
#include "work/load_figures.h"

#include "work/state.h"

static const double busy_at_the_end = 10;

/* relaxed: sums of counts that go on meanwhile */
static uint64_t get(const lm_atomic_u64 *count) {
    return lm_load_relaxed_u64(count);
}

/* How long it has run models, with the Run that goes on. */
static uint64_t busy_ns(const struct lm_worker *worker, uint64_t now_ns) {
    const uint64_t since_ns = get(&worker->busy_since_ns);
    return get(&worker->busy_ns) + (since_ns && since_ns < now_ns ? now_ns - since_ns : 0);
}

/* Mistakes of clients are no failures of the server. */
static void add_worker(const struct lm_worker *worker, struct lm_load_sums *sums) {
    const struct lm_worker_counters *counts = &worker->stats->worker;
    const uint64_t unfit = get(&counts->requests_bad) + get(&counts->requests_too_large);
    const uint64_t errors = get(&counts->requests_error);
    sums->answered += get(&counts->requests_ok);
    sums->failed += get(&counts->requests_overloaded) + get(&counts->requests_expired) +
                    (errors > unfit ? errors - unfit : 0);
    sums->running += (uint32_t)get(&worker->serving);
}

static void add_io(const struct lm_io *io, struct lm_load_sums *sums) {
    const struct lm_io_counters *counts = &io->stats->io;
    sums->ios_busy_ns += get(&io->busy_ns);
    sums->answered += get(&counts->requests_ok);
    sums->failed += get(&counts->requests_overloaded) + get(&counts->requests_late) +
                    get(&counts->upstream_failed);
}

static struct lm_load_sums count(const struct lm_shared *shared, uint64_t now_ns) {
    struct lm_load_sums sums = {.ios = shared->io_count};
    for (uint32_t w = 0; w < shared->bulk.answerers; w++)
        if (lm_worker_is_there(&shared->workers[w])) add_worker(&shared->workers[w], &sums);
    for (uint32_t w = 0; w < shared->thread_count; w++)
        sums.workers_busy_ns += busy_ns(&shared->workers[w], now_ns);
    for (uint32_t i = 0; i < shared->io_count; i++) add_io(&shared->ios[i], &sums);
    for (uint32_t n = 0; n < shared->node_count; n++) {
        const struct lm_node *node = &shared->nodes[n];
        if (!node->thread_count) continue;
        sums.workers += lm_node_parallel(node);
        sums.waiting += (uint32_t)lm_queue_depth(&lm_node_line(node)->queue);
    }
    return sums;
}

/* Returns the figures' number. */
static uint32_t look(struct lm_shared *shared, uint64_t now_ns, struct lm_load_figures *figures) {
    if (lm_load_meter_begin(&shared->load, now_ns)) {
        const struct lm_load_sums sums = count(shared, now_ns);
        lm_load_meter_make(&shared->load, &sums, now_ns);
    }
    const uint32_t number = lm_load_meter_read(&shared->load, figures);
    if (!lm_shared_is_leaving(shared)) return number;
    figures->busy = busy_at_the_end;
    figures->queued = 0;
    return ~number;
}

void lm_load_look(struct lm_shared *shared, uint64_t now_ns, struct lm_load_figures *figures_out) {
    (void)look(shared, now_ns, figures_out);
}

const char *lm_load_line(struct lm_shared *shared, uint8_t form, uint64_t now_ns) {
    static _Thread_local struct {
        const struct lm_shared *of;
        uint32_t number;
        uint8_t form;
        char line[LM_LOAD_LINE_BYTES];
    } last;
    struct lm_load_figures figures;
    if (shared->config.orca == LUMEN_ORCA_ALWAYS && form == LM_LOAD_UNASKED) form = LM_LOAD_TEXT;
    if (shared->config.orca == LUMEN_ORCA_NEVER || form == LM_LOAD_UNASKED) return "";
    const uint32_t number = look(shared, now_ns, &figures);
    if (last.of == shared && last.number == number && last.form == form) return last.line;
    last.of = shared;
    last.number = number;
    last.form = form;
    (void)lm_load_write_line(&figures, (enum lm_load_form)form, last.line);
    return last.line;
}

size_t lm_load_field(struct lm_shared *shared, uint64_t now_ns,
                     uint8_t field[LM_LOAD_FIELD_BYTES]) {
    struct lm_load_figures figures;
    if (shared->config.orca != LUMEN_ORCA_ALWAYS) return 0;
    (void)look(shared, now_ns, &figures);
    return lm_load_write_field(&figures, field);
}
