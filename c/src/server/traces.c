/* traces.c: requests that are recorded one by one. Control thread. */
#include "base/error.h"
#include "lumen_traces.h"
#include "parts/settings.h"
#include "server/state.h"

enum { PER_SECOND_MAX = 1000000 };

int lumen_set_traces(lumen_server *server, double share, uint32_t per_second) {
    struct lm_shared *shared = &server->shared;
    struct lm_span_store *store = &server->spans;
    if (server->state != SERVER_OPEN)
        return lm_error(LUMEN_E_STATE, "traces are set before lumen_start");
    if (!(share >= 0 && share <= 1))
        return lm_error(LUMEN_E_INVALID, "traces.share: expected 0.0 to 1.0, found %g", share);
    int code = lm_setting_in_range("traces.per_second", per_second, 1, PER_SECOND_MAX);
    if (!code && !store->spans) code = lm_span_store_open(store);
    if (code) return code;
    shared->sampling = (struct lm_sampling){.share = share, .per_second = per_second};
    return 0;
}

int lumen_take_spans(lumen_server *server, lumen_span *spans, uint32_t most, uint32_t *count_out,
                     uint64_t *lost_out) {
    struct lm_span_store *store = &server->spans;
    if (!store->spans) return lm_error(LUMEN_E_STATE, "no traces are recorded (lumen_set_traces)");
    pthread_mutex_lock(&server->control);
    /* The threads that have ended may have left rows that are not taken yet. */
    if (server->state == SERVER_ENDED) lm_telemetry_close(&server->telemetry);
    pthread_mutex_unlock(&server->control);
    *count_out = lm_span_store_take(store, spans, most, lost_out);
    return 0;
}
