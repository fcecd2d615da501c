/* upstream_state.h: what an I/O thread knows of the servers elsewhere that answer some of its
 * requests: its connections to them (links), and the requests that they have (exchanges). The
 * table of each is made at the start; nothing is allocated afterwards. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_STATE_H
#define LM_DIALECTS_UPSTREAM_STATE_H

#include "flow/transport.h"
#include "formats/openai_request.h"
#include "formats/openai_usage.h"
#include "tls/client.h"
#include "wire/http_response.h"

struct lm_upstream_trunk;

enum {
    LM_NO_LINK = UINT32_MAX,
    LM_NO_TRUNK = UINT16_MAX,
    LM_UPSTREAM_TICK_MS = 20, /* between two looks at what takes too long */
    LM_EXCHANGE_SLICES = 16,  /* of a body, in one piece of an answer */
    LM_EXCHANGE_PARTS = LM_EXCHANGE_SLICES + 4,
    LM_EXCHANGE_EVENT_BYTES = LM_TEXT_BYTES_MAX + 192
};

/* Why a link is over. */
enum lm_link_fault {
    LM_FAULT_CLOSED, /* by its other side */
    LM_FAULT_UNDIALED,
    LM_FAULT_DIALED_LATE,
    LM_FAULT_SILENT, /* no answer in time, or no more of it */
    LM_FAULT_LATE,   /* the answer was not whole in time */
    LM_FAULT_GARBAGE,
    LM_FAULT_UNTRUSTED,   /* its certificate, or its TLS */
    LM_FAULT_PASSED_OVER, /* the answer says to ask elsewhere, where there is somebody else */
    LM_FAULT_RESET        /* a stream of HTTP/2, by its other side */
};

enum lm_link_state {
    LM_LINK_FREE,
    LM_LINK_DIALING, /* it is being connected, and greeted where it speaks TLS */
    LM_LINK_IDLE,
    LM_LINK_ASKING,    /* its request goes out; the head of the answer is awaited */
    LM_LINK_ANSWERING, /* its body */
    LM_LINK_CARRYING,  /* it speaks HTTP/2: streams have the requests */
    LM_LINK_OVER       /* it has no request, and is closed once the kernel is done with it */
};

/* The part of a link that only a stream of HTTP/2 has. */
struct lm_upstream_stream {
    uint32_t id;   /* 0: its head is not sent; or the link is a connection */
    uint8_t place; /* in its trunk's */
    bool is_stream;
    bool has_ended;      /* its other side says no more */
    uint32_t deferred;   /* bytes of its body behind window_used, which its client does not take */
    uint32_t owed;       /* bytes that have gone on, and its other side may send anew */
    int32_t recv_window; /* bytes that its other side may send */
    int64_t send_window;
};

/* A way to an address, for one request at a time: a connection, or a stream of HTTP/2, which is one
 * of many on a connection that is a link too. */
struct lm_link {
    uint32_t connection, generation; /* in the table of connections */
    uint32_t previous, next;         /* idle ones of the same address, or free ones; LM_NO_LINK */
    uint32_t slot;                   /* of the request that it has; LM_NO_SLOT: none */
    uint16_t trunk;                  /* of a stream, or of its connection; LM_NO_TRUNK: HTTP/1.1 */
    uint8_t upstream, address;       /* their numbers */
    uint8_t state;                   /* enum lm_link_state */
    uint8_t fault;                   /* enum lm_link_fault */
    int32_t
        refusal;  /* errno, of one that could not be dialed; HTTP/2's, of a stream that was reset */
    bool is_used; /* it has answered before: its other side may have closed it */
    bool has_ticket;              /* for the next ones, where it speaks TLS */
    bool connects;                /* the kernel connects it */
    bool sends;                   /* the ring sends the request */
    bool has_answered;            /* some byte of the answer is here */
    bool keep_alive;              /* it may be used again after this answer */
    uint8_t framing;              /* enum lm_http_framing */
    uint32_t keep_alive_s;        /* 0: the other side has not said */
    uint64_t moved_ns;            /* when it last got on */
    uint64_t idle_until_ns;       /* it may be used so long; UINT64_MAX: always */
    uint64_t left;                /* of a body with a length */
    struct lm_http_chunks chunks; /* of one without */
    uint32_t head_used;           /* bytes of the answer's head that wait for others */
    struct msghdr message;        /* the request */
    struct iovec parts[8];
    struct lm_upstream_stream stream;
};

/* How the end of an answer is told to its client. */
enum lm_exchange_framing {
    LM_EXCHANGE_BY_LENGTH,
    LM_EXCHANGE_BY_CHUNKS,
    LM_EXCHANGE_BY_END /* of the stream, or of the connection */
};

/* A request that an upstream answers: it is with none of the workers. Entry i is slot i's. */
struct lm_exchange {
    uint32_t link;  /* LM_NO_LINK: none has it */
    uint32_t rival; /* the other link that has it (upstream_hedge.h); LM_NO_LINK: there is none */
    uint8_t upstream;
    uint8_t framing;    /* enum lm_exchange_framing */
    uint16_t wanted;    /* the index of the model that its client asked for */
    uint8_t fallen;     /* how many in its place were looked at */
    bool may_go_on;     /* an answer that is passed over: to another address */
    bool is_retried;    /* it went to another address */
    bool is_renewed;    /* a link that had been used died with it */
    bool is_sent;       /* some of the request may be with an upstream */
    bool head_passed;   /* its client has the beginning of the answer */
    bool is_events;     /* the answer is a stream of events */
    bool at_rest;       /* and no event is half passed */
    uint16_t status;    /* HTTP's, of the answer */
    uint32_t tried;     /* bit n: address n */
    uint64_t until_ns;  /* its whole answer is due then */
    uint64_t pinged_ns; /* when its client last heard that it goes on; 0: never */
    struct lm_openai_request asked;
    bool is_metered; /* a key or a model has a budget for it, so its answer is read for: */
    struct lm_usage_reader usage;
    uint64_t prompt_tokens; /* that were taken for what it asks */
    char *head; /* in the slot: of the request, later of the answer; LM_UPSTREAM_HEAD_BYTES */
    size_t head_bytes;
    uint8_t *window; /* in the slot: what the client has not taken; LM_UPSTREAM_WINDOW_BYTES */
    size_t window_used;
    struct iovec parts[LM_EXCHANGE_PARTS];
    char line[24]; /* of a chunk */
    char event[LM_EXCHANGE_EVENT_BYTES];
};

/* An address as an I/O thread sees it: its links, and how its last requests ended. */
struct lm_upstream_health {
    uint32_t number;     /* of the address that this is about */
    uint32_t idle;       /* the link that was idle last; LM_NO_LINK: none is */
    uint32_t carrying;   /* one of the links that carry streams, or will; LM_NO_LINK: none does */
    bool speaks_http2;   /* as its last greeting said */
    uint16_t streams;    /* that it takes at a time on a connection, as it said last */
    uint32_t open;       /* connections */
    uint32_t busy;       /* requests there */
    uint32_t failures;   /* one behind the other */
    SSL_SESSION *ticket; /* with which it is greeted sooner; NULL: none */
    uint64_t failed_ns;  /* the last of them */
    uint64_t ejected_until_ns;
    uint64_t next_dial_ns;
};

struct lm_upstream_pool {
    struct lm_upstream_health addresses[LUMEN_UPSTREAM_ADDRESSES_MAX];
    uint32_t asked, retried; /* of late */
    uint64_t since_ns;       /* when they were last halved */
};

/* One I/O thread's. */
struct lm_upstream_side {
    /* Untouched: free. */
    struct lm_mapping links_memory, exchanges_memory, trunks_memory;
    struct lm_link *links;
    struct lm_upstream_trunk *trunks; /* upstream_http2_state.h */
    uint32_t links_max, trunks_used;
    uint16_t free_trunk;
    struct lm_exchange *exchanges;
    uint32_t links_used, free_link;
    uint32_t busy; /* links that are neither free nor idle */
    uint64_t next_due_ns;
    uint64_t random;
    char untrusted[256]; /* why the last greeting failed */
    struct lm_openai_parser *parser;
    struct lm_upstream_pool pools[LUMEN_UPSTREAMS_MAX];
};

/* NULL: it is over, and its connection is about to be closed. */
static inline struct lm_link *lm_link_of(const struct lm_io *io,
                                         const struct lm_connection *connection) {
    struct lm_link *link = &io->upstream->links[connection->in.carried];
    const bool is_its = link->state != LM_LINK_FREE && !link->stream.is_stream &&
                        link->connection == connection->index &&
                        link->generation == connection->generation;
    return is_its ? link : NULL;
}
static inline struct lm_connection *lm_link_connection(struct lm_io *io,
                                                       const struct lm_link *link) {
    return lm_io_connection(io, link->connection);
}
/* Whether the connection has to stay as it is, for a request or for the kernel; beside records that
 * the ring still sends. */
static inline void lm_link_hold(const struct lm_io *io, struct lm_connection *connection,
                                bool holds) {
    const struct lm_transport *transport = lm_transport_of(io, connection);
    const bool has_rest = transport->has_rest && transport->has_rest(io, connection);
    connection->in_flight = (uint32_t)holds + has_rest;
}
static inline struct lm_exchange *lm_exchange_of(const struct lm_io *io, uint32_t slot) {
    return &io->upstream->exchanges[slot];
}
static inline struct lm_connection *lm_exchange_client(struct lm_io *io, uint32_t slot) {
    return lm_io_connection(io, io->requests[slot].connection);
}
/* Something is under way: what is due is looked at soon. */
static inline void lm_upstream_wake(struct lm_io *io) {
    const uint64_t soon_ns = io->now_ns + LM_UPSTREAM_TICK_MS * 1000000ull;
    if (io->upstream->next_due_ns > soon_ns) io->upstream->next_due_ns = soon_ns;
}
static inline const struct lm_upstream *lm_upstream_at(const struct lm_io *io, uint32_t index) {
    return io->shared->upstreams.at[index];
}

#endif
