/* loadgen.h: what the load generator's loop (loadgen.c) and its dialects share: a connection, and
 * what a dialect knows of requests and replies. All of it belongs to the thread in lumen_load.
 */
#ifndef LM_LOAD_LOADGEN_H
#define LM_LOAD_LOADGEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/native_codec.h"
#include "lumen_load.h"
#include "ring/ring.h"
#include "tls/session.h"

enum { LM_LOAD_HTTP_HEAD_BYTES = 8192 /* a reply's head, at most */ };

struct lm_load_connection {
    int fd;              /* -1: not open; dialled when a request needs it */
    uint32_t generation; /* of the descriptor */
    bool dialling;       /* a request that is busy begins when it is connected */
    bool lost;           /* and never used again */
    bool busy;           /* a request is out: its reply is not whole, and a receive is under way */
    bool counted;        /* the request was due after the warm-up */
    bool sending;        /* a part of the request goes out through the ring */
    bool last;           /* nothing can follow what is out now: close, and dial anew */
    bool differs;        /* the reply from what is expected */
    bool head_done;
    uint16_t status;    /* of the reply, enum lm_status */
    uint32_t payload;   /* which one is out */
    uint32_t head_used; /* bytes of the reply's head put together so far */
    uint64_t due_ns;
    uint64_t body_left; /* of the reply, once its head is known */
    uint64_t body_used;
    uint8_t *head; /* the dialect's reply_head_bytes */
    uint8_t request[LM_NATIVE_REQUEST_BYTES];
    struct iovec parts[2]; /* what is not sent of it */
    struct msghdr message;
    struct lm_tls_session *session; /* NULL: no TLS, or no handshake yet */
};

/* 0, or LUMEN_E_INVALID with the setting that cannot be used. */
int lm_load_check(const lumen_load_config *config);
/* How the connections come to be. */
struct lm_load_dials {
    const lumen_load_config *config;
    struct lm_ring *ring;
    struct lm_load_connection *connections;
    struct lm_load_tls *tls; /* NULL: none */
    struct sockaddr_storage address;
    socklen_t address_bytes;
    uint32_t count; /* under way */
    int code;       /* of the last one that was not to be had; 0: none */
};

/* All connections, before the clock runs. Returns 0, LUMEN_E_IO, or LUMEN_E_INVALID: the host is no
 * address. */
int lm_load_dial_all(struct lm_load_dials *dials);
/* Begins to connect one. Returns 0 or LUMEN_E_IO. */
int lm_load_dial(struct lm_load_dials *dials, uint32_t index);
/* Takes the end of a dial, or of a wait in its handshake. false: the connection is not there, is
 * dialled again, or goes on with its handshake. */
bool lm_load_dialled(struct lm_load_dials *dials, const struct lm_completion *completion);

/* ---- bytes, with and without TLS (loadgen_transport.c) ---- */

enum { LM_LOAD_TLS_WAITS = 1 };

/* The context and the buffers that all connections share; NULL for a load without TLS. Returns 0 or
 * LUMEN_E*. */
int lm_load_tls_open(struct lm_load_tls **tls_out, const lumen_load_config *config);
void lm_load_tls_close(struct lm_load_tls *tls); /* NULL is allowed */
/* Frees a connection's session; before its socket is closed. `tls` may be NULL. */
void lm_load_tls_end(struct lm_load_tls *tls, struct lm_load_connection *connection);
/* Goes on with a handshake. Returns 0: it is done; WAITS: for bytes of the server; LUMEN_E*. */
int lm_load_tls_greet(struct lm_load_tls *tls, struct lm_load_connection *connection);
/* The server's next bytes, valid until the next write or read of any connection: how many; 0: the
 * end; -EAGAIN: none are there; or another negative errno. */
ssize_t lm_load_tls_read(struct lm_load_tls *tls, struct lm_load_connection *connection,
                         const uint8_t **bytes_out);
/* With and without TLS (`tls` NULL): sends what the socket takes of connection->parts. Returns what
 * the ring is to send first; NULL: nothing is left. */
const struct msghdr *lm_load_write(struct lm_load_tls *tls, struct lm_load_connection *connection);
/* The ring has sent what lm_load_write gave; `result` as it completed. false: not all of it. */
bool lm_load_written(struct lm_load_tls *tls, struct lm_load_connection *connection,
                     int32_t result);

struct lm_load_dialect {
    uint32_t request_head_bytes; /* of `request`, sent before the payload */
    uint32_t reply_head_bytes;   /* room that take_head needs */
    /* Once per connection: writes `request`. */
    void (*prepare)(struct lm_load_connection *connection, const lumen_load_config *config);
    /* Takes what of these bytes belongs to the reply's head and returns how many that were. With
     * its last byte sets head_done, status, body_left and, if need be, last. -1: this is no reply,
     * or one whose end cannot be known. */
    ssize_t (*take_head)(struct lm_load_connection *connection, const uint8_t *bytes, size_t count);
};

extern const struct lm_load_dialect lm_load_native;
extern const struct lm_load_dialect lm_load_http;

/* What the head of an HTTP reply says. */
struct lm_load_http_reply {
    uint32_t code;
    uint64_t body_bytes;
    bool closes; /* the server closes the connection after it */
};

/* Reads a head from its first byte. Returns how many bytes it has; 0: more are needed; -1: not the
 * head of a reply, longer than LM_LOAD_HTTP_HEAD_BYTES, or of a body whose length is not said. */
int lm_load_http_parse(const uint8_t *bytes, size_t count, struct lm_load_http_reply *reply_out);
/* The native status (enum lm_status) for an HTTP one; 15: none is like it. */
uint16_t lm_load_http_status(uint32_t code);

#endif
