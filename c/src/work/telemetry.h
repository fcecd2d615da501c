/* telemetry.h: the thread that writes a line per request: to the telemetry file (CSV, of what
 * workers answered), to the access log (all requests, with who asked and why not), or to both. */
#ifndef LM_WORK_TELEMETRY_H
#define LM_WORK_TELEMETRY_H

#include <pthread.h>

#include "parts/line_file.h"
#include "work/span_store.h"
#include "work/state.h"

struct lm_telemetry {
    struct lm_shared *shared;
    struct lm_line_file csv, access;
    lm_atomic_u32 access_as_json;
    pthread_t thread;
    lm_atomic_u32 runs; /* the thread was started, and not ended */
    lm_atomic_u32 stop;
    lm_atomic_u64 rounds;        /* over all threads, each of all rows that were there */
    lm_atomic_u32 reopen;        /* 1: the thread opens its files again */
    struct lm_span_store *spans; /* its owner's, for requests that are recorded; NULL: none are */
    pthread_mutex_t news_lock;   /* held for a copy */
    char news[1024];             /* lines that nobody took yet */
};

/* Opens or creates the files; a path may be NULL, and is copied by nobody. Returns 0, or LUMEN_E_*
 * with the setting. */
int lm_telemetry_open(struct lm_telemetry *telemetry, struct lm_shared *shared,
                      const char *csv_path, const char *access_path);
/* Starts the thread; the workers' and I/O threads' traces are there. */
int lm_telemetry_start(struct lm_telemetry *telemetry);
/* Whether its thread runs. Any thread. */
bool lm_telemetry_runs(const struct lm_telemetry *telemetry);
/* Control thread: a round that began after a row was pushed, and is over, has written it. */
uint64_t lm_telemetry_rounds(const struct lm_telemetry *telemetry);
/* Control thread: what the thread has to say to people. false: nothing. */
bool lm_telemetry_news(struct lm_telemetry *telemetry, char *text, size_t room);
/* Writes what is left, once no other thread runs any more, and ends the thread; again: nothing. */
void lm_telemetry_close(struct lm_telemetry *telemetry);

#endif
