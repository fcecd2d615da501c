/* telemetry.c: drains the threads' traces to files; see telemetry.h.
 * Nobody waits for this thread: what it does not take in time is dropped and counted there.
 */
#include "work/telemetry.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "work/access_line.h"

enum { RECORDS_AT_ONCE = 64, NAP_NS = 20 * 1000 * 1000 };

static const char header[] =
    "id,model,worker,queue_type,allocator,started_ns,bytes,rows,batch_rows,receive_ns,queue_ns,"
    "preprocess_ns,infer_ns,send_ns,total_ns,status,width,expert\n";

/* ---- what people are told ---- */

static void tell(struct lm_telemetry *telemetry) {
    pthread_mutex_lock(&telemetry->news_lock);
    size_t used = strlen(telemetry->news);
    snprintf(telemetry->news + used, sizeof telemetry->news - used, "%s%s", used ? "\n" : "",
             lm_error_last());
    pthread_mutex_unlock(&telemetry->news_lock);
}

bool lm_telemetry_runs(const struct lm_telemetry *telemetry) {
    /* relaxed: says nothing about other memory */
    return lm_load_relaxed_u32(&telemetry->runs);
}

bool lm_telemetry_news(struct lm_telemetry *telemetry, char *text, size_t room) {
    if (!lm_telemetry_runs(telemetry)) return false;
    pthread_mutex_lock(&telemetry->news_lock);
    bool found = telemetry->news[0];
    if (found) snprintf(text, room, "%s", telemetry->news);
    telemetry->news[0] = '\0';
    pthread_mutex_unlock(&telemetry->news_lock);
    return found;
}

/* ---- lines ---- */

static void write_row(struct lm_telemetry *telemetry, uint32_t worker,
                      const struct lm_trace_record *row) {
    const struct lm_shared *shared = telemetry->shared;
    const bool is_own = worker >= shared->bulk.answerers; /* an I/O thread's */
    const char *own = row->kind == LUMEN_SPAN_UPSTREAM ? "upstream" : "cache";
    char line[LM_LINE_BYTES_MAX];
    int bytes = snprintf(
        line, sizeof line,
        "%llu,%s,%u,%s,%s,%llu,%u,%u,%u,%llu,%llu,%llu,%llu,%llu,%llu,%u,%u,%s\n",
        (unsigned long long)row->id, lm_stats_model_name(&shared->stats, row->model),
        is_own ? worker - shared->bulk.answerers : worker, is_own ? own : lm_queue_name(row->queue),
        row->allocator == LUMEN_ALLOCATOR_ARENA ? "lumen_arena" : "standard",
        (unsigned long long)row->started_ns, row->bytes, row->rows, row->batch_rows,
        (unsigned long long)row->receive_ns, (unsigned long long)row->queue_ns,
        (unsigned long long)row->preprocess_ns, (unsigned long long)row->infer_ns,
        (unsigned long long)row->send_ns, (unsigned long long)row->total_ns, row->status,
        row->width, row->expert ? lm_stats_model_name(&shared->stats, row->expert - 1u) : "");
    LM_ASSERT(bytes > 0 && (size_t)bytes < sizeof line);
    if (lm_line_file_add(&telemetry->csv, line, (size_t)bytes, &telemetry->stop)) tell(telemetry);
}

static void write_access(struct lm_telemetry *telemetry, const struct lm_trace_record *row,
                         uint64_t offset_ns) {
    char line[LM_LINE_BYTES_MAX];
    /* relaxed: which form the next line has */
    bool as_json = lm_load_relaxed_u32(&telemetry->access_as_json);
    const struct lm_stats *stats = &telemetry->shared->stats;
    const char *model =
        row->model == LM_TRACE_NO_MODEL ? NULL : lm_stats_model_name(stats, row->model);
    size_t bytes = lm_access_log_line(line, row, model, offset_ns, as_json);
    if (lm_line_file_add(&telemetry->access, line, bytes, &telemetry->stop)) tell(telemetry);
}

static void keep_span(struct lm_telemetry *telemetry, const struct lm_trace_record *row,
                      uint64_t offset_ns) {
    const struct lm_shared *shared = telemetry->shared;
    lumen_span span = {.span = row->context.span,
                       .parent = row->context.parent,
                       .started_ns = row->started_ns + offset_ns,
                       .receive_ns = row->receive_ns,
                       .queue_ns = row->queue_ns,
                       .preprocess_ns = row->preprocess_ns,
                       .infer_ns = row->infer_ns,
                       .send_ns = row->send_ns,
                       .total_ns = row->total_ns,
                       .bytes = row->bytes,
                       .rows = row->rows,
                       .batch_rows = row->batch_rows,
                       .width = row->width,
                       .status = row->status,
                       .code = row->code,
                       .kind = row->kind,
                       .is_http = row->is_http};
    memcpy(span.trace, row->context.trace, sizeof span.trace);
    snprintf(span.model, sizeof span.model, "%s", lm_stats_model_name(&shared->stats, row->model));
    snprintf(span.dialect, sizeof span.dialect, "%s", row->dialect);
    lm_span_store_add(telemetry->spans, &span);
}

static uint32_t drain_some(struct lm_telemetry *telemetry, struct lm_trace *trace, uint32_t worker,
                           uint64_t offset_ns) {
    struct lm_trace_record records[RECORDS_AT_ONCE];
    uint32_t count = lm_trace_pop(trace, records, RECORDS_AT_ONCE);
    for (uint32_t r = 0; r < count; r++) {
        const bool is_line = !records[r].is_span_alone;
        if (is_line && telemetry->csv.setting && !records[r].what)
            write_row(telemetry, worker, &records[r]);
        if (is_line && telemetry->access.setting) write_access(telemetry, &records[r], offset_ns);
        if (records[r].context.span) keep_span(telemetry, &records[r], offset_ns);
    }
    return count;
}

/* At least all rows that were there when it began. */
static uint32_t drain_one(struct lm_telemetry *telemetry, struct lm_trace *trace, uint32_t worker,
                          uint64_t offset_ns) {
    uint32_t written = 0, count = RECORDS_AT_ONCE;
    while (count == RECORDS_AT_ONCE && written < LM_TRACE_RECORDS + RECORDS_AT_ONCE) {
        count = drain_some(telemetry, trace, worker, offset_ns);
        written += count;
    }
    return written;
}

/* One round over all threads; returns how many rows there were. */
static uint32_t drain(struct lm_telemetry *telemetry) {
    struct lm_shared *shared = telemetry->shared;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t offset_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - lm_now_ns();
    uint32_t written = 0;
    for (uint32_t w = 0; w < shared->bulk.answerers; w++)
        if (lm_worker_is_there(&shared->workers[w]))
            written += drain_one(telemetry, &shared->workers[w].trace, w, offset_ns);
    for (uint32_t i = 0; i < shared->io_count; i++)
        written +=
            drain_one(telemetry, &shared->ios[i].trace, shared->bulk.answerers + i, offset_ns);
    uint64_t rounds = lm_load_relaxed_u64(&telemetry->rounds); /* relaxed: own word */
    /* T1: release: the names in the lines are read; pairs with T2 */
    lm_store_release_u64(&telemetry->rounds, rounds + 1);
    return written;
}

uint64_t lm_telemetry_rounds(const struct lm_telemetry *telemetry) {
    return lm_load_acquire_u64(&telemetry->rounds); /* T2: acquire; pairs with T1 */
}

/* ---- the thread ---- */

static void flush(struct lm_telemetry *telemetry, struct lm_line_file *file) {
    if (file->setting && lm_line_file_flush(file, &telemetry->stop)) tell(telemetry);
}

static void reopen(struct lm_telemetry *telemetry, struct lm_line_file *file) {
    flush(telemetry, file);
    if (file->setting && lm_line_file_reopen(file)) tell(telemetry);
}

static void *telemetry_main(void *argument) {
    struct lm_telemetry *telemetry = argument;
    sigset_t all; /* signals are for Python's main thread, as in every thread of the server */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_setname_np(pthread_self(), "lumen-trace");
    for (;;) {
        /* S1: acquire: sees below every row pushed before the stop; pairs with S2 */
        bool last = lm_load_acquire_u32(&telemetry->stop);
        /* O1: acq_rel: each request to open is taken once; pairs with O2 in server/reload.c */
        if (lm_exchange_acq_rel_u32(&telemetry->reopen, 0)) {
            reopen(telemetry, &telemetry->csv);
            reopen(telemetry, &telemetry->access);
        }
        while (drain(telemetry) > 0) continue;
        flush(telemetry, &telemetry->csv);
        flush(telemetry, &telemetry->access);
        /* relaxed: a counter that this thread alone writes */
        lm_store_relaxed_u64(&telemetry->shared->ios[0].stats->io.log_lines_lost,
                             telemetry->csv.lost + telemetry->access.lost);
        if (last) return NULL;
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

int lm_telemetry_open(struct lm_telemetry *telemetry, struct lm_shared *shared,
                      const char *csv_path, const char *access_path) {
    memset(telemetry, 0, sizeof *telemetry);
    telemetry->shared = shared;
    pthread_mutex_init(&telemetry->news_lock, NULL);
    int code = 0;
    if (csv_path)
        code = lm_line_file_open(&telemetry->csv, "engine.telemetry_csv_path", csv_path, header);
    if (!code && access_path)
        code = lm_line_file_open(&telemetry->access, "log.access_path", access_path, NULL);
    return code;
}

int lm_telemetry_start(struct lm_telemetry *telemetry) {
    int code = pthread_create(&telemetry->thread, NULL, telemetry_main, telemetry);
    if (code) return lm_error_errno(LUMEN_E_NOMEM, code, "cannot start the telemetry thread");
    /* relaxed: says nothing about other memory */
    lm_store_relaxed_u32(&telemetry->runs, 1);
    return 0;
}

void lm_telemetry_close(struct lm_telemetry *telemetry) {
    if (lm_telemetry_runs(telemetry)) {
        /* S2: release: the rows pushed before; pairs with S1 */
        lm_store_release_u32(&telemetry->stop, 1);
        pthread_join(telemetry->thread, NULL);
    }
    lm_line_file_close(&telemetry->csv);
    lm_line_file_close(&telemetry->access);
    /* relaxed: says nothing about other memory */
    lm_store_relaxed_u32(&telemetry->runs, 0);
}
