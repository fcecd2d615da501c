/* connection.h: one client connection: what is being read, what is being sent, when it may close.
 *
 * The I/O thread owns every field. Workers read `fd` and `gone` and take `sender`; they only do so
 * while they hold a request of the connection, and a connection with requests out is never closed.
 */
#ifndef LM_FLOW_CONNECTION_H
#define LM_FLOW_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/limits.h"
#include "base/native_codec.h"
#include "formats/http_route.h"
#include "parts/arena.h"
#include "parts/keys.h"
#include "wire/http_chunks.h"

enum { LM_NO_CONNECTION = UINT32_MAX, LM_NO_REGION = UINT16_MAX };

enum { LM_FD_FREE = -1, LM_FD_PARKED = INT32_MAX };

enum lm_read_state {
    LM_READ_HEADER,
    LM_READ_PROLOGUE,   /* what the dialect takes in pieces behind a header; see its `take` */
    LM_READ_BODY,       /* into the parts of `receiving` */
    LM_READ_DISCARD,    /* the payload of a refused request: `discard_bytes` more */
    LM_READ_DESCRIPTOR, /* one byte, with which a descriptor comes; see dialect.h */
    LM_READ_WAIT,  /* a header is read, no slot is free, or its bytes are not here: slot_wait.c */
    LM_READ_LINGER /* refused for good: read and drop for a moment, so that the reply is not lost */
};

/* What an HTTP head asked for, once its bytes are gone. */
struct lm_http_call {
    uint64_t content_bytes; /* while chunked: of the chunks that were dropped */
    int64_t json_bytes;     /* -1: the body is JSON and nothing else */
    uint64_t owner;         /* stands for the key's name: sequences are its own; 0: no key */
    uint32_t key;           /* index in the table of keys when the head came, or LM_NO_KEY */
    uint32_t signature;     /* of the model, when the head came */
    uint32_t timeout_us;    /* that the head says; 0: none */
    uint16_t model;         /* its index, or LM_NO_MODEL */
    uint8_t route;          /* enum lm_http_route */
    bool head_only;
    bool keep_alive;
    bool expects_continue;
    bool chunked;
    uint16_t session;      /* of lm_traffic_session */
    bool any_version : 1;  /* of the model: the path names none */
    bool names_region : 1; /* the path names a shared memory region */
    bool admin : 1;        /* the key was one when the head came */
    bool is_forwarded : 1; /* by a proxy: whose request it is, the socket does not say */
    bool from_page : 1;    /* a browser sends it for a page of another site */
    bool is_old : 1;       /* HTTP/1.0: it reads no chunks */
    uint8_t coding;        /* of the body: enum lm_coding */
    uint8_t turn;          /* enum lm_texts_turn, as Priority says */
    uint8_t load;          /* enum lm_load_form: what its answer is to say of the server's load */
    uint8_t top;           /* classes that a picture is answered with; 0: not said */
    uint32_t exchange;     /* 1 + the slot of its request, while an upstream has it; 0: none does */
    struct lm_http_chunks chunks;
};

/* A native request's key and sizes. They take the credential's place once it was looked up. */
struct lm_native_call {
    uint32_t key;                    /* index in the table of keys, or LM_NO_KEY */
    uint32_t signature;              /* of the model, when the header came; 0: none is there */
    uint32_t word;                   /* of the shape block: its bytes so far */
    uint16_t input;                  /* that the word is of */
    uint16_t input_at;               /* which word was its first */
    uint32_t free[LM_FREE_DIMS_MAX]; /* sizes in the shape block; 0: not there yet */
};

#define LM_NO_KEY LM_KEY_NONE
enum { LM_NO_BLOCK = UINT16_MAX, LM_NO_MODEL = UINT16_MAX };

/* A request on its way in: what is known of it until a slot holds it, and where its bytes go. A
 * connection has one; one of HTTP/2 carries streams, each of which has one. */
struct lm_stream {
    uint8_t read_state;   /* enum lm_read_state */
    uint8_t cut_short;    /* enum lm_status: why a half-read request ends; OK: its client left */
    uint16_t header_used; /* bytes of a header that is not whole yet, shape block and all */
    uint16_t block;       /* HTTP: where what came in pieces is put together, or LM_NO_BLOCK */
    uint32_t receiving;   /* slot of the request whose body is read, or LM_NO_SLOT */
    uint64_t started_ns;  /* when the header's first byte was seen */
    union {
        uint64_t discard_bytes; /* HTTP: of the body, not yet taken */
        uint64_t owner;         /* native: of its key (lm_key_owner) */
    };
    union {
        struct {
            uint8_t header[LM_NATIVE_REQUEST_BYTES];
            union {
                uint8_t credential[LM_NATIVE_CREDENTIAL_BYTES];
                struct lm_native_call native;
            };
        };
        struct lm_http_call call;
        uint32_t carried; /* HTTP/2: what the connection carries (dialects/http2_state.h) */
    };
};

/* A stream is carried by another connection, whose descriptor it has. */
enum {
    LM_TRANSPORT_TCP,
    LM_TRANSPORT_UNIX,
    LM_TRANSPORT_STREAM,
    LM_TRANSPORT_TLS,
    LM_TRANSPORT_COUNT
};

struct lm_connection {
    LM_CACHE_ALIGNED lm_atomic_u32 sender; /* the token of whoever sends on it: 0 free, 1 taken */
    lm_atomic_u32 gone; /* 1: nobody is there to answer; written by the I/O thread */
    int fd;             /* or LM_FD_* */
    uint32_t index;
    uint32_t generation;
    uint8_t dialect; /* enum lm_dialect_index */
    bool recv_armed;
    bool marked;  /* on the list of lm_connection_mark */
    bool ended;   /* nothing more will be read */
    bool counted; /* adds to lm_io.connections_wanting */
    bool write_shut;
    bool close_after_reply; /* the request in flight is the last one; HTTP, so it is alone */
    uint8_t list;           /* enum lm_connection_list: where prev and next lead */
    uint16_t buffer_at;
    uint16_t buffer_end;
    int32_t buffer;      /* provided buffer with bytes not yet consumed, or LM_NO_BUFFER */
    uint32_t in_flight;  /* requests with the workers */
    uint32_t sending;    /* slot whose reply the ring is sending, or LM_NO_SLOT */
    uint32_t reply_head; /* slots whose replies wait for the token, or LM_NO_SLOT */
    uint32_t reply_tail;
    uint32_t prev, next;
    uint32_t next_marked;
    union {
        uint32_t address; /* its entry in the table of addresses */
        uint32_t carrier; /* of a stream: the connection that carries it */
    };
    uint16_t region;    /* memory that it shares with its client (region.h), or LM_NO_REGION */
    bool read_shut : 1; /* by this side: the end of the stream says nothing of the client */
    bool watches : 1;   /* a stream: its client waits for changes, and is never idle */
    uint8_t transport;  /* LM_TRANSPORT_* (transport.h) */
    uint64_t timer_ns;  /* on a list with deadlines: when */
    struct lm_stream in;
};

_Static_assert(sizeof(struct lm_connection) <= 192, "an idle connection costs its table entry");

enum lm_connection_list {
    LM_LIST_NONE,
    LM_LIST_FREE,
    LM_LIST_WAITING,        /* for a slot, with their bytes here */
    LM_LIST_WAITING_PART,   /* with as many of them as the kernel takes, which is not all */
    LM_LIST_EXPECTING,      /* for their bytes, while few slots are free */
    LM_LIST_EXPECTING_HELD, /* the same, holding a header buffer or a block meanwhile */
    LM_LIST_ASKING,         /* for a model that is being loaded: they want no slot yet */
    LM_LIST_LINGERING,      /* half-closed behind the last reply, the first to end first */
    LM_LIST_STARVED,        /* of a header buffer */
    LM_LIST_RESUMING,       /* with bytes that may be parsed: others had their turn first */
    LM_LIST_UNPARKING,      /* of a descriptor, as a rule with bytes in a header buffer */
    LM_LIST_IDLE,           /* where idle connections are parked: the longest idle first */
    LM_LIST_COUNT
};

struct lm_io;

int lm_connections_open(struct lm_io *io, uint32_t capacity);
void lm_connections_close(struct lm_io *io);

/* Takes an entry for a descriptor (LM_TRANSPORT_*); NULL when the table is full. */
struct lm_connection *lm_connection_open(struct lm_io *io, int fd, uint8_t transport);
/* Takes an entry for a stream, beside those of connections; NULL: all are taken. */
struct lm_connection *lm_connection_open_stream(struct lm_io *io,
                                                const struct lm_connection *carrier);
/* Takes an entry for a socket that this server has opened, beside those of clients; NULL: all are
 * taken. It reads nothing until its dialect says LM_READ_PROLOGUE. */
struct lm_connection *lm_connection_open_dialed(struct lm_io *io, int fd, uint8_t dialect);
/* Nothing is armed, in flight or to be sent any more: the entry is free again. */
void lm_connection_close(struct lm_io *io, struct lm_connection *connection);
/* Moves a connection to another list, at its end. */
void lm_connection_move(struct lm_io *io, struct lm_connection *connection,
                        enum lm_connection_list list);

/* Something changed: lm_advance_all goes on with the connection before the thread sleeps. May be
 * called any number of times in a turn. */
void lm_connection_mark(struct lm_io *io, struct lm_connection *connection);
/* The connection marked first, now without its mark; NULL: none is. */
struct lm_connection *lm_connection_take_marked(struct lm_io *io);

/* When its client is to find another server (server.max_connection_age_seconds); 0: never. Up to a
 * tenth later than it must, for those that came together not to come back so. */
uint64_t lm_connection_old_ns(const struct lm_io *io, const struct lm_connection *connection);
/* Whether that is past. */
bool lm_connection_is_old(const struct lm_io *io, const struct lm_connection *connection);

/* No more requests will be read; what is in flight is still answered. Marks. */
void lm_connection_end(struct lm_io *io, struct lm_connection *connection);
/* Between two requests: ends it when the socket has nothing more. A request that has come meanwhile
 * is served. Marks where it has ended. */
void lm_connection_end_idle(struct lm_io *io, struct lm_connection *connection);
/* Whether who sends no more may still read. Over HTTP it has left, as Go, nginx and uvicorn have
 * it, unless half-closers are served. */
bool lm_connection_may_half_close(const struct lm_io *io, const struct lm_connection *connection);
/* Nobody is there: replies that wait are dropped, and workers skip what they have not run. Marks.
 */
void lm_connection_abort(struct lm_io *io, struct lm_connection *connection);
/* A refused connection: after the reply, half-close, drop what comes for a moment, of which `left`
 * bytes are known to be on their way, close. Marks. */
void lm_connection_linger(struct lm_io *io, struct lm_connection *connection, uint64_t left);
/* The connection has ended: gives back what was being read, but for a slot that the kernel may
 * still write to. May be called again. */
void lm_connection_drop_reading(struct lm_io *io, struct lm_connection *connection);

/* Bytes of the next requests may be looked at: the pipeline has room and no own reply is stuck. */
bool lm_connection_may_parse(const struct lm_io *io, const struct lm_connection *connection);
static inline bool lm_connection_is_stream(const struct lm_connection *connection) {
    return connection->transport == LM_TRANSPORT_STREAM;
}
/* Replies are queued, or one is being sent by the ring. */
static inline bool lm_connection_is_sending(const struct lm_connection *connection) {
    return connection->reply_head != LM_NO_SLOT || connection->sending != LM_NO_SLOT;
}
static inline bool lm_connection_expects(const struct lm_connection *connection) {
    return connection->list == LM_LIST_EXPECTING || connection->list == LM_LIST_EXPECTING_HELD;
}
static inline bool lm_connection_waits(const struct lm_connection *connection) {
    return connection->list == LM_LIST_WAITING || connection->list == LM_LIST_WAITING_PART;
}

#endif
