/* dialect.h: what the life of a connection asks of the protocol that its client speaks. flow/ calls
 * a dialect through this table alone; dialects/ holds the tables, and lumen_open puts them into
 * lm_shared. The client's first bytes choose between them (dialects/greeting.c).
 *
 * Functions without a word about it run on the connection's I/O thread. None of them advances a
 * connection: they change its state, mark it where need be (lm_connection_mark), and return.
 */
#ifndef LM_FLOW_DIALECT_H
#define LM_FLOW_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/native_codec.h"
#include "parts/trace.h"

struct iovec;
struct lm_completion;
struct lm_connection;
struct lm_io;
struct lm_refusal;
struct lm_request;

/* Index in lm_shared.dialects. */
enum lm_dialect_index {
    LM_DIALECT_OPEN,
    LM_DIALECT_NATIVE,
    LM_DIALECT_HTTP,
    LM_DIALECT_HTTP2,
    LM_DIALECT_GRPC,     /* in streams of HTTP/2 */
    LM_DIALECT_UPSTREAM, /* HTTP/1.1, of which this server is the client */
    LM_DIALECT_UPSTREAM_HTTP2,
    LM_DIALECT_COUNT
};

/* Whether this server has opened the connection, to one elsewhere. */
static inline bool lm_dialect_is_own(uint8_t dialect) {
    return dialect == LM_DIALECT_UPSTREAM || dialect == LM_DIALECT_UPSTREAM_HTTP2;
}

struct lm_dialect {
    const char *name; /* in the access log */
    /* Replies have no id, so one request of a connection is with the workers at a time. Bytes are
     * received meanwhile all the same, so that the end of the client is seen. */
    bool one_at_a_time;

    /* ---- reading ---- */
    /* Takes bytes in LM_READ_HEADER and LM_READ_PROLOGUE. Returns how many; a connection that was
     * ended or refused meanwhile says so in its state. */
    size_t (*take)(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                   size_t count);
    /* LM_READ_PROLOGUE: when the client must have sent it; 0: never. */
    uint64_t (*prologue_deadline_ns)(const struct lm_io *io,
                                     const struct lm_connection *connection);
    /* The last byte of a body is in its slot: checks what can be checked now, and submits. */
    void (*body_received)(struct lm_io *io, struct lm_connection *connection);
    /* LM_READ_DESCRIPTOR: the socket has a byte, or its end. NULL: never in that state. What `take`
     * sees in that state came with other bytes: the kernel has closed its descriptor. */
    void (*descriptor)(struct lm_io *io, struct lm_connection *connection);
    /* Gives back what the dialect holds for a request that is not read whole. */
    void (*forget)(struct lm_io *io, struct lm_connection *connection);

    /* ---- a connection that carries streams; NULL: it carries none ---- */
    /* It is advanced: looks at its streams, and sends what there is of them. */
    void (*carry)(struct lm_io *io, struct lm_connection *connection);
    /* Where the bytes that come next belong, so that they are received there. false: to a buffer.
     */
    bool (*place)(struct lm_io *io, struct lm_connection *connection, struct iovec *place_out);
    /* So many of them have come, before any others do; 0: none will. */
    void (*placed)(struct lm_io *io, struct lm_connection *connection, size_t bytes);
    /* The ring has sent some of that. */
    void (*sent)(struct lm_io *io, struct lm_connection *connection,
                 const struct lm_completion *completion);

    /* ---- a request that waits for a slot ---- */
    /* Bytes of its body that are still to come, at least; 0: the client waits to be asked. */
    uint64_t (*bytes_expected)(const struct lm_connection *connection);
    /* Looks for a slot again. */
    void (*retry)(struct lm_io *io, struct lm_connection *connection);
    /* Answers it; the rest of its body is dropped. */
    void (*refuse)(struct lm_io *io, struct lm_connection *connection,
                   const struct lm_refusal *refusal);

    /* ---- a request that is too slow ---- */
    /* Says so and ends the connection, where a reply can be said at all; otherwise aborts it. The
     * status says why: BAD_REQUEST: the client's own time is up, OVERLOADED: its slot was needed.
     */
    void (*give_up)(struct lm_io *io, struct lm_connection *connection, enum lm_status status,
                    const char *why);
    /* Answers an admitted request in the place of its worker, which does not come back. */
    void (*answer)(struct lm_io *io, struct lm_connection *connection, struct lm_request *request,
                   enum lm_status status, const char *why);

    /* ---- replies: the thread that ran the request; both set its status ---- */
    /* `shape_block_bytes` 0: every output has its declared shape. */
    void (*compose_outputs)(struct lm_request *request, const void *const *data,
                            const size_t *bytes, size_t shape_block_bytes);
    void (*compose_error)(struct lm_request *request, enum lm_status status, const char *text);

    /* ---- the access log ---- */
    /* The key that the client showed, or LM_KEY_NONE. */
    uint32_t (*key)(const struct lm_io *io, const struct lm_connection *connection);
    /* The thread that ran the request: what only the dialect knows of its row. */
    void (*complete_row)(const struct lm_request *request, struct lm_trace_record *row);
    bool is_http; /* for the row's form, and what the end of a client's stream means */
    /* Its requests are calls: no page of a browser makes them, a body may be a message of Protocol
     * Buffers, and a missed deadline has a code of its own. */
    bool is_rpc;
};

#endif
