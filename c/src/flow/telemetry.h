/* telemetry.h: the thread that writes a CSV row per request, when a trace is asked for. */
#ifndef LM_FLOW_TELEMETRY_H
#define LM_FLOW_TELEMETRY_H

#include <pthread.h>
#include <stdio.h>

#include "flow/worker.h"

struct lm_telemetry {
    struct lm_shared *shared;
    FILE *file;
    pthread_t thread;
    bool thread_started;
    lm_atomic_u32 stop;
};

/* Creates the file with its header row. Returns 0 or LUMEN_E_IO. */
int lm_telemetry_open(struct lm_telemetry *telemetry, struct lm_shared *shared, const char *path);
/* Starts the thread; the workers' traces are there. */
int lm_telemetry_start(struct lm_telemetry *telemetry);
/* Writes what is left, once no worker runs any more, and ends the thread. */
void lm_telemetry_close(struct lm_telemetry *telemetry);

#endif
