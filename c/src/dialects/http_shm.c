/* http_shm.c: see http_shm.h. */
#include "dialects/http_shm.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "dialects/http_access.h"
#include "dialects/http_admit.h"
#include "dialects/http_answer.h"
#include "dialects/http_block.h"
#include "dialects/http_refuse.h"
#include "formats/oip_region.h"

_Static_assert((int)LM_SHM_NAME_BYTES_MAX >= (int)LM_NAME_BYTES_MAX, "a path's name fits");

static void answer(struct lm_io *io, struct lm_connection *connection, const char *body,
                   size_t bytes) {
    lm_http_skip_body(io, connection);
    lm_add_single_writer_u64(&io->stats->io.requests_ok, 1);
    lm_http_answer(io, connection,
                   &(struct lm_http_answer){.code = 200, .body = body, .body_bytes = bytes});
}

static void refuse_unknown(struct lm_io *io, struct lm_connection *connection, const char *name) {
    char why[LM_TEXT_BYTES_MAX];
    snprintf(why, sizeof why, "Unable to find system shared memory region: '%.64s'", name);
    lm_http_refuse_status(io, connection, LM_STATUS_BAD_REQUEST, why);
}

/* All of them, or the one of that name. */
static void answer_status(struct lm_io *io, struct lm_connection *connection, const char *name) {
    char *text = io->http->draft;
    size_t used = 0, room = io->http->draft_bytes;
    text[used++] = '[';
    for (uint32_t r = 0; r < LM_SHM_REGIONS_MAX; r++) {
        struct lm_shm_info info;
        if (!lm_shm_list(io->shared->shm, r, &info)) continue;
        if (*name && strcmp(name, info.name) != 0) continue;
        used += (size_t)snprintf(
            text + used, room - used,
            "%s{\"name\":\"%s\",\"key\":\"%s\",\"offset\":%llu,\"byte_size\":%llu}",
            used > 1 ? "," : "", info.name, info.key, (unsigned long long)info.offset,
            (unsigned long long)info.bytes);
    }
    if (*name && used == 1) {
        refuse_unknown(io, connection, name);
        return;
    }
    LM_ASSERT(used + 1 < room);
    text[used++] = ']';
    answer(io, connection, text, used);
}

static void unregister(struct lm_io *io, struct lm_connection *connection, const char *name) {
    struct lm_shm_info info;
    if (*name) (void)lm_shm_unregister(io->shared->shm, name); /* none: it is not there, as asked */
    for (uint32_t r = 0; !*name && r < LM_SHM_REGIONS_MAX; r++) {
        if (lm_shm_list(io->shared->shm, r, &info))
            (void)lm_shm_unregister(io->shared->shm, info.name);
    }
    answer(io, connection, "", 0);
}

/* The JSON is put together in a block, which keeps the name meanwhile. */
static void begin_registering(struct lm_io *io, struct lm_connection *connection,
                              const char *name) {
    struct lm_http_call *call = &connection->in.call;
    struct lm_http_block *block = lm_http_block(io, connection);
    if (call->chunked || call->content_bytes == 0 || call->content_bytes > LM_HTTP_JSON_BYTES_MAX) {
        lm_http_refuse_status(io, connection, LM_STATUS_BAD_REQUEST,
                              "expected JSON with key, offset and byte_size, of at most 8192 bytes "
                              "and with a Content-Length");
        return;
    }
    if (!block) block = lm_http_refuse_for_block(io, connection);
    if (!block) {
        lm_http_refuse_status(io, connection, LM_STATUS_OVERLOADED,
                              "too many requests arrive in pieces");
        return;
    }
    block->used = 0; /* of the head, which has been read */
    memcpy(block->region, name, strlen(name) + 1);
    call->json_bytes = (int64_t)call->content_bytes;
    connection->in.read_state = LM_READ_PROLOGUE;
    lm_http_ask_for_more(io, connection);
}

bool lm_http_shm_take(struct lm_io *io, struct lm_connection *connection,
                      const struct lm_http_match *match) {
    bool is_ours = match->route == LM_ROUTE_SYSTEM_SHM_STATUS ||
                   match->route == LM_ROUTE_SYSTEM_SHM_REGISTER ||
                   match->route == LM_ROUTE_SYSTEM_SHM_UNREGISTER;
    if (!io->shared->shm || !is_ours) return false;
    if (!lm_http_is_local(connection) || lm_http_control_refusal(connection)) {
        lm_refusal_count(io, LM_STATUS_UNAUTHORISED, UINT32_MAX);
        lm_http_refuse_code(io, connection, 403, NULL,
                            "shared memory is for this machine alone, and for an admin key where "
                            "the server has keys");
        return true;
    }
    if (match->route == LM_ROUTE_SYSTEM_SHM_STATUS) {
        answer_status(io, connection, match->name);
    } else if (match->route == LM_ROUTE_SYSTEM_SHM_UNREGISTER) {
        unregister(io, connection, match->name);
    } else {
        begin_registering(io, connection, match->name);
    }
    return true;
}

bool lm_http_shm_collects(const struct lm_connection *connection) {
    return connection->in.read_state == LM_READ_PROLOGUE &&
           connection->in.call.route == LM_ROUTE_SYSTEM_SHM_REGISTER &&
           !connection->in.call.chunked;
}

void lm_http_shm_register(struct lm_io *io, struct lm_connection *connection, const char *text) {
    struct lm_shm_info info;
    char why[LM_TEXT_BYTES_MAX];
    memcpy(info.name, lm_http_block(io, connection)->region, sizeof info.name);
    enum lm_status status = lm_oip_read_region(
        io->http->parser, text, (size_t)connection->in.call.json_bytes, &info, why, sizeof why);
    if (status == LM_STATUS_OK) status = lm_shm_register(io->shared->shm, &info, why, sizeof why);
    if (status == LM_STATUS_OK) {
        answer(io, connection, "", 0);
    } else {
        lm_http_refuse_status(io, connection, status, why);
    }
}
