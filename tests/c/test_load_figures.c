/* test_load_figures.c: which requests the load report counts as answered and as failed, on I/O
 * threads and on workers, and what the report says of it. The clock is the test's. */
#include <math.h>

#include "base/clock.h"
#include "check.h"
#include "lumen_report.h"
#include "server/state.h"
#include "work/load_figures.h"

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

/* A server of two busy workers of four, beside which two requests wait. Its figures are of a time
 * to come: none are made meanwhile. */
static void report(void) {
    static lumen_server server;
    const struct lm_load_sums sums = {.workers = 4,
                                      .ios = 1,
                                      .workers_busy_ns = 2 * SPAN_S * second_ns,
                                      .answered = 7 * SPAN_S,
                                      .failed = 3 * SPAN_S,
                                      .waiting = 2,
                                      .running = 1};
    const uint64_t later_ns = lm_now_ns() + 1000 * second_ns;
    lumen_load_report found;
    pthread_mutex_init(&server.control, NULL);
    CHECK(lumen_report_load(&server, &found) == LUMEN_E_STATE);
    server.state = SERVER_RUNNING;
    lm_load_meter_open(&server.shared.load, later_ns - SPAN_S * second_ns);
    CHECK(lm_load_meter_begin(&server.shared.load, later_ns));
    lm_load_meter_make(&server.shared.load, &sums, later_ns);
    CHECK(lumen_report_load(&server, &found) == 0);
    CHECK_AT("utilization %g, %g answered, %g failed", found.utilization, found.answered,
             found.failed);
    CHECK(fabs(found.utilization - (0.5 + 0.5)) < 0.01);
    CHECK(fabs(found.answered - 7) < 0.1 && fabs(found.failed - 3) < 0.1);
    CHECK(found.waiting == 2 && found.running == 1 && !found.leaving);
    lm_store_relaxed_u32(&server.shared.phase, LM_PHASE_UNREADY); /* relaxed: alone */
    CHECK(lumen_report_load(&server, &found) == 0 && found.leaving && found.utilization == 10);
    pthread_mutex_destroy(&server.control);
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
    report();
    return check_finish("test_load_figures");
}
