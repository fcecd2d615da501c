/* http_errands.c: see http_errands.h. */
#include "dialects/http_errands.h"

#include <stdio.h>
#include <string.h>

#include "dialects/http_access.h"
#include "dialects/http_admit.h"
#include "dialects/http_answer.h"
#include "dialects/http_block.h"
#include "dialects/http_demand.h"
#include "dialects/http_refuse.h"
#include "lumen.h"
#include "parts/errands.h"

_Static_assert((int)LM_ERRAND_TEXT_BYTES_MAX <= (int)LM_HTTP_JSON_BYTES_MAX, "a block holds it");
_Static_assert((int)LM_SHM_NAME_BYTES_MAX >= (int)LM_NAME_BYTES_MAX, "a block holds the name");

static const struct {
    uint8_t route;
    uint8_t kind;
} errands_of[] = {
    {LM_ROUTE_REPOSITORY_INDEX, LUMEN_ERRAND_INDEX},
    {LM_ROUTE_REPOSITORY_LOAD, LUMEN_ERRAND_LOAD},
    {LM_ROUTE_REPOSITORY_UNLOAD, LUMEN_ERRAND_UNLOAD},
    {LM_ROUTE_TRACE_SETTING, LUMEN_ERRAND_TRACE},
    {LM_ROUTE_LOGGING, LUMEN_ERRAND_LOGGING},
};
enum { NO_ERRAND = UINT32_MAX };

static uint32_t kind_of(uint8_t route) {
    for (size_t e = 0; e < sizeof errands_of / sizeof errands_of[0]; e++) {
        if (errands_of[e].route == route) return errands_of[e].kind;
    }
    return NO_ERRAND;
}

static bool is_errand(uint8_t route) {
    return kind_of(route) != NO_ERRAND;
}

static void hand_over(struct lm_io *io, struct lm_connection *connection, struct lm_errand *errand,
                      const char *name, size_t bytes) {
    errand->kind = kind_of(connection->in.call.route);
    errand->connection = connection->index;
    errand->text_bytes = bytes;
    memcpy(errand->name, name, strlen(name) + 1);
    lm_http_skip_body(io, connection);
    connection->in_flight++;
    io->errands_out++;
    lm_errands_submit(io->shared->errands, errand);
}

static void submit(struct lm_io *io, struct lm_connection *connection, const char *name,
                   const char *text, size_t bytes) {
    struct lm_errand *errand = lm_errands_acquire(io->shared->errands, io->index);
    if (!errand) {
        lm_http_refuse_status(io, connection, LM_STATUS_OVERLOADED,
                              "too many calls to the control program wait already");
        return;
    }
    memcpy(errand->text, text, bytes);
    hand_over(io, connection, errand, name, bytes);
}

/* Whether the control program answers it here. */
static bool takes(const struct lm_io *io, uint8_t route) {
    return io->shared->errands && is_errand(route) &&
           lm_errands_take(io->shared->errands, kind_of(route));
}

uint64_t lm_http_errand_bytes_max(const struct lm_io *io, uint8_t route) {
    const struct lm_errands *errands = io->shared->errands;
    if (!takes(io, route)) return 0;
    uint64_t upload = route == LM_ROUTE_REPOSITORY_LOAD ? lm_errands_upload_bytes(errands) : 0;
    return upload > LM_ERRAND_TEXT_BYTES_MAX ? upload : LM_ERRAND_TEXT_BYTES_MAX;
}

static void refuse_length(struct lm_io *io, struct lm_connection *connection) {
    struct lm_http_call *call = &connection->in.call;
    const uint64_t most = lm_http_errand_bytes_max(io, call->route);
    const bool is_load = call->route == LM_ROUTE_REPOSITORY_LOAD;
    char why[LM_TEXT_BYTES_MAX];
    snprintf(why, sizeof why,
             "expected JSON of at most %llu bytes%s, with a Content-Length, found %s",
             (unsigned long long)most, is_load ? " (repository.upload_bytes)" : "",
             call->chunked ? "chunks" : "more");
    lm_http_refuse_status(io, connection, LM_STATUS_BAD_REQUEST, why);
}

bool lm_http_errand_take(struct lm_io *io, struct lm_connection *connection,
                         const struct lm_http_match *match) {
    struct lm_http_call *call = &connection->in.call;
    if (!takes(io, call->route)) return false;
    const char *refusal = lm_http_control_refusal(connection);
    if (refusal) {
        if (call->route == LM_ROUTE_REPOSITORY_INDEX) return false; /* those that are served */
        lm_refusal_count(io, LM_STATUS_UNAUTHORISED, LM_NO_MODEL);
        lm_http_refuse_code(io, connection, 403, NULL, refusal);
        return true;
    }
    if (call->chunked || call->content_bytes > lm_http_errand_bytes_max(io, call->route)) {
        refuse_length(io, connection);
        return true;
    }
    if (call->content_bytes == 0) {
        submit(io, connection, match->name, "", 0);
        return true;
    }
    struct lm_http_block *block = lm_http_block(io, connection);
    if (!block) block = lm_http_refuse_for_block(io, connection);
    if (!block) {
        lm_http_refuse_status(io, connection, LM_STATUS_OVERLOADED,
                              "too many requests arrive in pieces");
        return true;
    }
    if (call->content_bytes > LM_ERRAND_TEXT_BYTES_MAX) {
        block->upload =
            lm_errands_begin_upload(io->shared->errands, io->index, (size_t)call->content_bytes);
        if (!block->upload) {
            lm_http_refuse_status(io, connection, LM_STATUS_OVERLOADED,
                                  "another call with files is not answered yet, or there is no "
                                  "memory for this one");
            return true;
        }
    }
    block->used = 0; /* of the head, which has been read */
    memcpy(block->region, match->name, strlen(match->name) + 1);
    call->json_bytes = (int64_t)call->content_bytes;
    connection->in.read_state = LM_READ_PROLOGUE;
    lm_http_ask_for_more(io, connection);
    return true;
}

bool lm_http_errand_collects(const struct lm_connection *connection) {
    return connection->in.read_state == LM_READ_PROLOGUE && is_errand(connection->in.call.route) &&
           !connection->in.call.chunked;
}

void lm_http_errand_received(struct lm_io *io, struct lm_connection *connection, const char *text) {
    const struct lm_http_block *block = lm_http_block(io, connection);
    submit(io, connection, block->region, text, (size_t)connection->in.call.json_bytes);
}

size_t lm_http_upload_take(struct lm_io *io, struct lm_connection *connection,
                           struct lm_http_block *block, const uint8_t *bytes, size_t count) {
    struct lm_errand *errand = block->upload;
    const size_t whole = (size_t)connection->in.call.json_bytes, left = whole - errand->text_bytes;
    const size_t taken = left < count ? left : count;
    memcpy((uint8_t *)errand->upload.base + errand->text_bytes, bytes, taken);
    errand->text_bytes += taken;
    connection->in.discard_bytes -= taken;
    if (taken < left) return taken;
    block->upload = NULL;
    hand_over(io, connection, errand, block->region, whole);
    return taken;
}

static void answer(struct lm_io *io, struct lm_connection *connection,
                   const struct lm_errand *errand) {
    if (errand->code < 400) {
        lm_add_single_writer_u64(&io->stats->io.requests_ok, 1);
    } else {
        lm_refusal_count(io, LM_STATUS_BAD_REQUEST, LM_NO_MODEL);
    }
    lm_http_answer(io, connection,
                   &(struct lm_http_answer){
                       .code = errand->code,
                       .headers = errand->code == 503 ? "Retry-After: 1\r\n" : NULL,
                       .body = errand->reply,
                       .body_bytes = errand->reply_bytes,
                   });
}

void lm_http_errands_answer(struct lm_io *io) {
    for (uint32_t e = 0; io->errands_out && e < LM_ERRANDS_PER_IO; e++) {
        struct lm_errand *errand = lm_errands_at(io->shared->errands, io->index, e);
        if (!errand->is_asked) continue;
        if (errand->kind == LUMEN_ERRAND_DEMAND) {
            if (!lm_errand_is_finished(errand)) continue;
            io->errands_out--;
            lm_http_demand_answered(io, errand);
            continue;
        }
        struct lm_connection *connection = lm_io_connection(io, errand->connection);
        bool is_gone = lm_load_relaxed_u32(&connection->gone); /* relaxed: written by this thread */
        if (!is_gone && !lm_errand_is_finished(errand)) continue;
        connection->in_flight--;
        io->errands_out--;
        if (is_gone) {
            lm_add_single_writer_u64(&io->stats->io.requests_gone, 1);
            lm_errand_abandon(errand);
        } else {
            answer(io, connection, errand);
            lm_errand_give(errand);
        }
        lm_connection_mark(io, connection);
    }
}
