/* test_load_figures.c: which requests the load report counts as answered and as failed, on I/O
 * threads and on workers. The clock is the test's. */
#include <math.h>

#include "check.h"
#include "work/load_figures.h"
#include "work/state.h"

enum { IO, WORKER, GONE, BLOCKS };
enum { SPAN_S = 100 };

static const uint64_t second_ns = 1000000000;
static uint64_t now_ns = 1000000000;
static struct lm_stats_block blocks[BLOCKS];
static struct lm_io ios[1];
static struct lm_worker workers[2];
static struct lm_shared shared;

/* A counter, and whether its requests are answered or failed ones. */
struct counted {
    const char *name;
    lm_atomic_u64 *counter;
    uint64_t answered, failed;
};

static void count(lm_atomic_u64 *counter, uint64_t requests) {
    lm_store_relaxed_u64(counter, lm_load_relaxed_u64(counter) + requests); /* relaxed: alone */
}

/* Looks so long after the last time that nothing of that is left in the figures. */
static void figures_are(const char *what, uint64_t answered, uint64_t failed) {
    struct lm_load_figures figures;
    now_ns += SPAN_S * second_ns;
    lm_load_look(&shared, now_ns, &figures);
    CHECK_AT("%s: %g answered, %g failed", what, figures.answered, figures.failed);
    CHECK(fabs(figures.answered * SPAN_S - (double)answered) < 0.5);
    CHECK(fabs(figures.failed * SPAN_S - (double)failed) < 0.5);
}

int main(void) {
    struct lm_io_counters *io = &blocks[IO].io;
    struct lm_worker_counters *worker = &blocks[WORKER].worker;
    const struct counted all[] = {
        {"answers of the I/O thread", &io->requests_ok, 1, 0},
        {"requests that found no slot", &io->requests_overloaded, 0, 1},
        {"requests that came too late", &io->requests_late, 0, 1},
        {"requests that failed at an upstream", &io->upstream_failed, 0, 1},
        {"answers of the worker", &worker->requests_ok, 1, 0},
        {"requests that the worker had no room for", &worker->requests_overloaded, 0, 1},
        {"requests that waited for too long", &worker->requests_expired, 0, 1},
        {"requests whose model failed", &worker->requests_error, 0, 1},
        {"answers of a worker that is not there", &blocks[GONE].worker.requests_ok, 0, 0},
    };
    ios[0].stats = &blocks[IO];
    workers[0].stats = &blocks[WORKER];
    workers[1].stats = &blocks[GONE];
    /* relaxed, all: nobody else is at work */
    lm_store_relaxed_u32(&workers[0].presence, LM_WORKER_THERE);
    lm_store_relaxed_u32(&workers[1].presence, LM_WORKER_ABSENT);
    lm_store_relaxed_u32(&shared.phase, LM_PHASE_RUNNING);
    shared.io_count = 1;
    shared.ios = ios;
    shared.workers = workers;
    shared.bulk.answerers = 2;
    lm_load_meter_open(&shared.load, now_ns);
    for (uint32_t c = 0; c < sizeof all / sizeof all[0]; c++) {
        const uint64_t requests = 1000 * (c + 1);
        count(all[c].counter, requests);
        figures_are(all[c].name, all[c].answered * requests, all[c].failed * requests);
    }
    /* Mistakes of clients are errors, and no failures of the server. */
    count(&worker->requests_error, 90);
    count(&worker->requests_bad, 50);
    count(&worker->requests_too_large, 40);
    figures_are("requests that were wrong", 0, 0);
    return check_finish("test_load_figures");
}
