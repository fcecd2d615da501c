/* access_log.h: what the access log says of a request: a row for each.
 *
 * The threads that answer push a row (parts/trace.h) and go on; the telemetry thread makes lines of
 * them (work/access_line.h). Without an access log each of these is one look at a flag. */
#ifndef LM_FLOW_ACCESS_LOG_H
#define LM_FLOW_ACCESS_LOG_H

#include "flow/state.h"
#include "lumen_traces.h"

/* A request that an I/O thread answered without a worker. */
struct lm_access_entry {
    const char *what;                 /* lives for ever */
    const char *why;                  /* NULL: nothing went wrong */
    uint64_t id;                      /* 0 with HTTP */
    uint64_t bytes;                   /* of the request's payload */
    uint32_t model;                   /* out of range: none */
    uint32_t code;                    /* a status, or HTTP's */
    const struct lm_request *request; /* that it answers, where it was admitted; NULL */
};
void lm_access_log_push(struct lm_io *io, const struct lm_connection *connection,
                        const struct lm_access_entry *entry);
static inline void lm_access_log(struct lm_io *io, const struct lm_connection *connection,
                                 const struct lm_access_entry *entry) {
    if (io->shared->access_logged) lm_access_log_push(io, connection, entry);
}

/* The same of an admitted request that no worker answers, over the native protocol. */
static inline void lm_access_log_refused(struct lm_io *io, const struct lm_connection *connection,
                                         const struct lm_request *request, enum lm_status status,
                                         const char *why) {
    struct lm_access_entry entry = {.what = "infer",
                                    .why = why,
                                    .id = request->id,
                                    .bytes = request->payload_bytes,
                                    .model = request->model->index,
                                    .code = status,
                                    .request = request};
    lm_access_log(io, connection, &entry);
}

/* I/O thread: keeps who asks with an admitted request, for the worker that answers it. */
void lm_access_log_admit(struct lm_io *io, const struct lm_connection *connection,
                         struct lm_request *request);
/* Whether rows of requests are written, of all or of some. */
static inline bool lm_access_log_has_rows(const struct lm_shared *shared) {
    return shared->traced || shared->sampling.per_second;
}
/* Whether anybody wants the row of a request that is answered. */
static inline bool lm_access_log_wants(const struct lm_request *request) {
    return request->io->shared->traced || request->context.span;
}
/* I/O thread: the row of an admitted request that it has answered, for the telemetry file too. */
struct lm_access_own {
    enum lumen_span_kind kind;
    uint64_t sent_ns;
    uint32_t code;      /* HTTP's; 0: as its status says */
    bool is_span_alone; /* another row says what its client was told */
};
void lm_access_log_push_own(struct lm_io *io, const struct lm_request *request,
                            const struct lm_access_own *own);
static inline void lm_access_log_own(struct lm_io *io, const struct lm_request *request,
                                     const struct lm_access_own *own) {
    if (own->is_span_alone ? request->context.span != 0 : lm_access_log_wants(request))
        lm_access_log_push_own(io, request, own);
}
/* Worker: completes the row of a request it has answered. */
void lm_access_log_complete(const struct lm_request *request, struct lm_trace_record *row);

#endif
