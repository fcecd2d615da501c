/* refusal.c: see refusal.h. */
#include "flow/refusal.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"

bool lm_refuse(struct lm_refusal *refusal, enum lm_status status, uint64_t retry_ns,
               const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal->why, sizeof refusal->why, format, arguments);
    va_end(arguments);
    refusal->status = status;
    uint64_t whole_s = (retry_ns + 999999999) / 1000000000;
    refusal->retry_after_s = whole_s < 1 ? 1 : whole_s > 3600 ? 3600 : (uint32_t)whole_s;
    return false;
}

/* Each refusal has one reason. */
static lm_atomic_u64 *reason_of(struct lm_io_counters *counters, enum lm_status status) {
    switch (status) {
    case LM_STATUS_UNKNOWN_MODEL: return &counters->requests_unknown_model;
    case LM_STATUS_TOO_LARGE: return &counters->requests_too_large;
    case LM_STATUS_OVERLOADED: return &counters->requests_overloaded;
    case LM_STATUS_DEADLINE: return &counters->requests_late;
    case LM_STATUS_UNAUTHORISED: return &counters->requests_unauthorised;
    case LM_STATUS_RATE_LIMITED: return &counters->requests_limited;
    case LM_STATUS_SHUTTING_DOWN: return &counters->requests_draining;
    case LM_STATUS_OK:                                       /* no refusal */
    case LM_STATUS_INFERENCE_FAILED: LM_DEBUG_ASSERT(false); /* fallthrough */
    case LM_STATUS_BAD_REQUEST: break;
    }
    return &counters->requests_bad;
}

void lm_refusal_count(struct lm_io *io, enum lm_status status, uint32_t model) {
    struct lm_io_counters *counters = &io->stats->io;
    bool is_error = status == LM_STATUS_BAD_REQUEST || status == LM_STATUS_UNKNOWN_MODEL ||
                    status == LM_STATUS_TOO_LARGE || status == LM_STATUS_UNAUTHORISED;
    lm_add_single_writer_u64(is_error ? &counters->requests_error : &counters->requests_refused, 1);
    lm_add_single_writer_u64(reason_of(counters, status), 1);
    if (!lm_model_set_find(io->models, model) || status == LM_STATUS_UNAUTHORISED) return;
    struct lm_io_model_counters *of_model = &io->stats->models[model].io;
    lm_add_single_writer_u64(is_error ? &of_model->model_bad : &of_model->model_refused, 1);
}
