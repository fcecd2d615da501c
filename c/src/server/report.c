/* report.c: how loaded the server is. Control thread. */
#include "base/clock.h"
#include "base/error.h"
#include "lumen_report.h"
#include "server/state.h"
#include "work/load_figures.h"

int lumen_report_load(lumen_server *server, lumen_load_report *report_out) {
    struct lm_load_figures figures;
    /* While the control thread changes something the last figures will do. */
    const bool may_count = pthread_mutex_trylock(&server->control) == 0;
    const bool runs = may_count && server->state == SERVER_RUNNING;
    if (runs) lm_load_look(&server->shared, lm_now_ns(), &figures);
    if (may_count) pthread_mutex_unlock(&server->control);
    if (!runs && (may_count || lm_load_meter_read(&server->shared.load, &figures) == 0))
        return lm_error(LUMEN_E_STATE, "a server that does not run has no load");
    *report_out = (lumen_load_report){.utilization = figures.busy + figures.queued,
                                      .answered = figures.answered,
                                      .failed = figures.failed,
                                      .waiting = figures.waiting,
                                      .running = figures.running,
                                      .leaving = lm_shared_is_leaving(&server->shared)};
    return 0;
}
