/* greeting.c: see greeting.h. */
#include "dialects/greeting.h"

#include <string.h>

#include "dialects/http_receive.h"
#include "wire/http2_frame.h"

enum { GREETING_BYTES = LM_NATIVE_MAGIC_BYTES };

/* Whether they may be the beginning of a preface of HTTP/2. */
static bool may_be_http2(const uint8_t *bytes, size_t count) {
    return memcmp(bytes, LM_HTTP2_PREFACE, count) == 0;
}

/* The first four bytes say which dialect it will be: LMN1, "PRI " of HTTP/2, or HTTP/1.1 whatever
 * they are. */
static size_t take(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                   size_t count) {
    uint16_t before = connection->in.header_used;
    size_t missing = (size_t)GREETING_BYTES - before;
    size_t taken = count < missing ? count : missing;
    uint64_t started_ns = connection->in.started_ns;
    memcpy(connection->in.header + before, bytes, taken);
    bool is_native = lm_native_may_be_header(connection->in.header, before + taken);
    if (is_native || may_be_http2(connection->in.header, before + taken)) {
        if (before == 0) connection->in.started_ns = io->now_ns;
        connection->in.header_used = (uint16_t)(before + taken);
        if (connection->in.header_used < GREETING_BYTES) return taken;
        connection->dialect = is_native ? LM_DIALECT_NATIVE : LM_DIALECT_HTTP2;
        if (!is_native) connection->in.carried = LM_NO_CONNECTION;
        return taken;
    }
    connection->dialect = LM_DIALECT_HTTP;
    connection->in.header_used = 0;
    if (before == 0) return 0;
    /* A method that begins as the magic does: what is left of it comes next. */
    (void)lm_http_take(io, connection, connection->in.header, before);
    connection->in.started_ns = started_ns;
    return 0;
}

static void forget(struct lm_io *io, struct lm_connection *connection) {
    (void)io;
    (void)connection;
}

/* So few bytes are no request of anybody: nothing can be said. */
static void give_up(struct lm_io *io, struct lm_connection *connection, enum lm_status status,
                    const char *why) {
    (void)status;
    (void)why;
    lm_connection_abort(io, connection);
}

static uint32_t key(const struct lm_io *io, const struct lm_connection *connection) {
    (void)io;
    (void)connection;
    return LM_NO_KEY;
}

const struct lm_dialect lm_greeting = {
    .name = "none", .take = take, .forget = forget, .give_up = give_up, .key = key};
