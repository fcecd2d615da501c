/* lumen_report.h: how loaded a server is, as its answers say it to balancers (server.orca). */
#ifndef LUMEN_REPORT_H
#define LUMEN_REPORT_H

#include <stdint.h>

#include "lumen.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of about the last quarter of a second. */
typedef struct lumen_load_report {
    double utilization; /* busy workers or I/O threads, whichever are busier, as a share of them,
                         * and requests that wait for each worker; 10 before the end */
    double answered;    /* requests a second, */
    double failed;      /* and those that were refused for lack of time or room, or failed */
    uint32_t waiting;   /* for a worker, now */
    uint32_t running;   /* with one */
    uint32_t leaving;   /* 1: the server is about to end */
    uint32_t reserved;
} lumen_load_report;

/* Any one thread, after lumen_start. Returns 0 or LUMEN_E_STATE. */
LUMEN_API int lumen_report_load(lumen_server *server, lumen_load_report *report_out);

#ifdef __cplusplus
}
#endif
#endif
