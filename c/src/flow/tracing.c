/* tracing.c: see tracing.h. */
#include "flow/tracing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

enum { STATE_BYTES_MAX = 512, ID_BYTES_MAX = 128 };

/* Of a head. Entry i is connection i's. */
struct said {
    uint64_t started_ns; /* of the request whose head it was */
    uint32_t generation; /* of its connection */
    bool is_part;        /* of a trace, `parent`, which `value` says */
    uint16_t value_bytes, state_bytes, id_bytes;
    struct lm_traceparent parent;
    char value[LM_TRACEPARENT_BYTES_MAX];
    char state[STATE_BYTES_MAX];
    char id[ID_BYTES_MAX];
};

/* An I/O thread's. */
struct lm_tracing {
    struct lm_mapping memory; /* untouched entries cost nothing */
    struct said *said;
    bool any; /* some head said something */
    uint64_t random;
    uint64_t second_ns; /* since when: */
    uint32_t recorded;  /* requests, */
    uint32_t most;      /* of so many */
};

int lm_tracing_open(struct lm_io *io) {
    if (!io->shared->sampling.per_second && io->shared->upstreams.count == 0) return 0;
    struct lm_tracing *tracing = calloc(1, sizeof *tracing);
    io->tracing = tracing;
    if (!tracing) return lm_error(LUMEN_E_NOMEM, "no memory for traces");
    if (lm_mapping_reserve(&tracing->memory, io->connection_capacity * sizeof *tracing->said))
        return lm_error(LUMEN_E_NOMEM, "no memory for the traces of connections");
    tracing->said = tracing->memory.base;
    uint64_t seed = lm_now_ns() ^ (uint64_t)io->index << 56; /* where the kernel has none */
    (void)!getrandom(&seed, sizeof seed, GRND_NONBLOCK);
    tracing->random = lm_random_seeded(seed);
    const uint32_t threads = io->shared->io_count;
    tracing->most = (io->shared->sampling.per_second + threads - 1) / threads;
    return 0;
}

void lm_tracing_close(struct lm_io *io) {
    if (!io->tracing) return;
    lm_mapping_close(&io->tracing->memory);
    free(io->tracing);
    io->tracing = NULL;
}

/* ---- heads ---- */

static uint16_t keep(char *to, struct lm_slice value, size_t most, bool is_fit) {
    if (!is_fit || value.bytes == 0 || value.bytes > most) return 0;
    memcpy(to, value.at, value.bytes);
    return (uint16_t)value.bytes;
}

void lm_tracing_keep(struct lm_io *io, const struct lm_connection *connection,
                     const struct lm_tracing_head *head) {
    struct lm_tracing *tracing = io->tracing;
    if (!tracing) return;
    struct said *said = &tracing->said[connection->index];
    if (!head->traceparent.bytes && !head->request_id.bytes) { /* tracestate alone says nothing */
        if (tracing->any) said->started_ns = 0; /* one before it may have begun in this turn, too */
        return;
    }
    said->generation = connection->generation;
    said->started_ns = connection->in.started_ns;
    said->is_part = lm_traceparent_read(head->traceparent, &said->parent);
    said->value_bytes =
        keep(said->value, head->traceparent, LM_TRACEPARENT_BYTES_MAX, said->is_part);
    said->state_bytes = keep(said->state, head->tracestate, STATE_BYTES_MAX, said->is_part);
    said->id_bytes = keep(said->id, head->request_id, ID_BYTES_MAX, true);
    tracing->any = true;
}

/* The entry of the connection's request; NULL: its head says nothing. */
static const struct said *said_of(const struct lm_io *io, const struct lm_connection *connection) {
    if (!io->tracing || !io->tracing->any) return NULL;
    const struct said *said = &io->tracing->said[connection->index];
    const bool is_its =
        said->generation == connection->generation && said->started_ns == connection->in.started_ns;
    return is_its ? said : NULL;
}

/* ---- which are recorded ---- */

/* However many are asked for: so many a second. */
static bool has_room(struct lm_io *io) {
    struct lm_tracing *tracing = io->tracing;
    if (io->now_ns >= tracing->second_ns + 1000000000ull) {
        tracing->second_ns = io->now_ns;
        tracing->recorded = 0;
    }
    if (tracing->recorded >= tracing->most) return false;
    tracing->recorded++;
    return true;
}

void lm_tracing_begin(struct lm_io *io, const struct lm_connection *connection,
                      struct lm_request *request) {
    struct lm_tracing *tracing = io->tracing;
    const struct lm_sampling *sampling = &io->shared->sampling;
    request->context.span = 0;
    if (!tracing || !sampling->per_second) return;
    const struct said *said = said_of(io, connection);
    const bool is_part = said && said->is_part;
    const bool is_wanted =
        is_part ? said->parent.is_sampled : lm_random_unit(&tracing->random) < sampling->share;
    if (!is_wanted || !has_room(io)) return;
    if (is_part) {
        memcpy(request->context.trace, said->parent.trace, LM_TRACE_ID_SIZE);
    } else {
        const uint64_t id[2] = {lm_random_next(&tracing->random), lm_random_next(&tracing->random)};
        memcpy(request->context.trace, id, sizeof id);
    }
    request->context.parent = is_part ? said->parent.span : 0;
    request->context.span = lm_random_next(&tracing->random); /* never 0 */
}

/* ---- lines ---- */

static void write_own(const struct lm_request *request, char text[LM_TRACEPARENT_BYTES + 1]) {
    struct lm_traceparent own = {.span = request->context.span, .is_sampled = true};
    memcpy(own.trace, request->context.trace, sizeof own.trace);
    lm_traceparent_write(&own, text);
}

static size_t write_line(char *out, size_t room, const char *name, const char *value,
                         size_t bytes) {
    return bytes ? (size_t)snprintf(out, room, "%s: %.*s\r\n", name, (int)bytes, value) : 0;
}

size_t lm_tracing_write(const struct lm_io *io, const struct lm_connection *connection,
                        const struct lm_request *request, char *out, size_t room) {
    const struct said *said = said_of(io, connection);
    char own[LM_TRACEPARENT_BYTES + 1];
    size_t used = 0;
    if (request->context.span) {
        write_own(request, own);
        used = write_line(out, room, "traceparent", own, LM_TRACEPARENT_BYTES);
    } else if (said) {
        used = write_line(out, room, "traceparent", said->value, said->value_bytes);
    }
    if (!said) return used;
    used += write_line(out + used, room - used, "tracestate", said->state, said->state_bytes);
    return used + write_line(out + used, room - used, "X-Request-Id", said->id, said->id_bytes);
}

size_t lm_tracing_write_answer(const struct lm_request *request, char out[LM_TRACERESPONSE_BYTES]) {
    char own[LM_TRACEPARENT_BYTES + 1];
    out[0] = '\0';
    if (!request->context.span) return 0;
    write_own(request, own);
    return write_line(out, LM_TRACERESPONSE_BYTES, "traceresponse", own, LM_TRACEPARENT_BYTES);
}
