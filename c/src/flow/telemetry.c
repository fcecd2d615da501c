/* telemetry.c: drains the workers' traces to a CSV file; see telemetry.h.
 * No worker ever waits for this thread: what it does not take in time is dropped and counted there.
 */
#include "flow/telemetry.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

enum { RECORDS_AT_ONCE = 256, NAP_NS = 20 * 1000 * 1000 };

static const char header[] =
    "id,model,worker,queue_type,allocator,started_ns,bytes,rows,batch_rows,receive_ns,queue_ns,"
    "preprocess_ns,infer_ns,send_ns,total_ns,status\n";

static void write_row(struct lm_telemetry *telemetry, uint32_t worker,
                      const struct lm_trace_record *row) {
    const struct lm_shared *shared = telemetry->shared;
    fprintf(telemetry->file, "%llu,%s,%u,%s,%s,%llu,%u,%u,%u,%llu,%llu,%llu,%llu,%llu,%llu,%u\n",
            (unsigned long long)row->id, shared->models[row->model].name, worker,
            lm_queue_name(shared->queue_type),
            shared->allocator_type == LUMEN_ALLOCATOR_ARENA ? "lumen_arena" : "standard",
            (unsigned long long)row->started_ns, row->bytes, row->rows, row->batch_rows,
            (unsigned long long)row->receive_ns, (unsigned long long)row->queue_ns,
            (unsigned long long)row->preprocess_ns, (unsigned long long)row->infer_ns,
            (unsigned long long)row->send_ns, (unsigned long long)row->total_ns, row->status);
}

/* One round over all workers; returns how many rows there were. */
static uint32_t drain(struct lm_telemetry *telemetry) {
    struct lm_trace_record records[RECORDS_AT_ONCE];
    uint32_t written = 0;
    for (uint32_t w = 0; w < telemetry->shared->worker_count; w++) {
        uint32_t count =
            lm_trace_pop(&telemetry->shared->workers[w].trace, records, RECORDS_AT_ONCE);
        for (uint32_t r = 0; r < count; r++) write_row(telemetry, w, &records[r]);
        written += count;
    }
    return written;
}

static void *telemetry_main(void *argument) {
    struct lm_telemetry *telemetry = argument;
    sigset_t all; /* signals are for Python's main thread, as in every thread of the server */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_setname_np(pthread_self(), "lumen-trace");
    for (;;) {
        /* acquire: every row pushed before the stop is seen below; pairs with the release in close
         */
        bool last = lm_load_acquire_u32(&telemetry->stop);
        while (drain(telemetry) > 0) continue;
        fflush(telemetry->file);
        if (last) return NULL;
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

int lm_telemetry_open(struct lm_telemetry *telemetry, struct lm_shared *shared, const char *path) {
    memset(telemetry, 0, sizeof *telemetry);
    telemetry->shared = shared;
    telemetry->file = fopen(path, "we");
    if (!telemetry->file || fputs(header, telemetry->file) == EOF) {
        return lm_error_errno(LUMEN_E_IO, errno, "engine.telemetry_csv_path: cannot write %s",
                              path);
    }
    return 0;
}

int lm_telemetry_start(struct lm_telemetry *telemetry) {
    int code = pthread_create(&telemetry->thread, NULL, telemetry_main, telemetry);
    if (code) return lm_error_errno(LUMEN_E_NOMEM, code, "cannot start the telemetry thread");
    telemetry->thread_started = true;
    return 0;
}

void lm_telemetry_close(struct lm_telemetry *telemetry) {
    if (telemetry->thread_started) {
        /* release: pairs with the acquire in telemetry_main */
        lm_store_release_u32(&telemetry->stop, 1);
        pthread_join(telemetry->thread, NULL);
    }
    if (telemetry->file) fclose(telemetry->file);
    telemetry->file = NULL;
    telemetry->thread_started = false;
}
