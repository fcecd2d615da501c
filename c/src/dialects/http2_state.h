/* http2_state.h: what an I/O thread knows of its connections of HTTP/2, each of which carries
 * streams. A stream is an entry of the table of connections whose transport is its carrier: its
 * request is read, admitted and answered as one of HTTP/1.1 is, and ends its connection. I/O thread
 * only.
 */
#ifndef LM_DIALECTS_HTTP2_STATE_H
#define LM_DIALECTS_HTTP2_STATE_H

#include "flow/state.h"
#include "formats/grpc_infer.h"
#include "wire/hpack.h"
#include "wire/http2_reader.h"

enum {
    LM_HTTP2_CONTROL_BYTES = 1280,   /* frames that wait to be sent, but for those of replies */
    LM_GRPC_STATUS_BYTES_MAX = 440,  /* the fields of a status among them */
    LM_HTTP2_HEADS_BYTES = 2048,     /* headers of the frames that are being sent */
    LM_HTTP2_SHELVED_MAX = 64 << 20, /* bytes on the shelves of an I/O thread */
    LM_HTTP2_BATCH_FRAMES = 16,
    LM_HTTP2_BATCH_PARTS = 64,
    /* For streams: those that are open, and twice as many that have ended in this turn or whose Run
     * goes on, which is what a client may cancel in a second. */
    LM_HTTP2_PLACES = 3 * LM_HTTP2_STREAMS_MAX,
    LM_HTTP2_PLACE_WORDS = (LM_HTTP2_PLACES + 63) / 64
};

/* How far a call of gRPC is read (grpc_receive.h). */
enum lm_grpc_stage {
    LM_GRPC_PREFIX,  /* a flag and the message's length */
    LM_GRPC_HEAD,    /* the message, or what of it stands before its tensors */
    LM_GRPC_TENSORS, /* which follow, each behind its tag and its length */
    LM_GRPC_WHOLE,   /* the message goes on to its request as it is */
    LM_GRPC_OVER     /* nothing more is read */
};

enum {
    LM_GRPC_PREFIX_BYTES = 5,
    LM_GRPC_PEEK_BYTES = 1024, /* of a compressed one, to find its model */
    LM_GRPC_DRAFT_BYTES = 3 * LM_HTTP_HEAD_BYTES_MAX
};

struct lm_grpc_call {
    uint8_t method; /* 1 + enum lm_grpc_method_index; 0: the stream is no call */
    uint8_t stage;  /* enum lm_grpc_stage */
    uint8_t coding; /* of its message: enum lm_coding */
    uint8_t used;   /* bytes of the prefix, or of what stands before a tensor */
    uint8_t blob_at, blob_count;
    bool is_composed;    /* the reply that is sent has become a message, or a status */
    bool is_message;     /* it is a message: the status comes behind it */
    bool is_watched;     /* its client hears of changes, from this on: */
    uint8_t serving;     /* of grpc.health.v1: what it knows */
    bool wants_final;    /* the client wants to hear that no other message follows the reply */
    uint8_t bytes[8];    /* the prefix, or that */
    uint16_t block;      /* that is kept for them where there may be many messages */
    uint16_t head_bytes; /* the client's fields, at the beginning of the block */
    uint16_t scanned;    /* of the message, in whole fields */
    uint32_t left;       /* of the message */
    uint32_t blob_left;
    uint32_t blobs[LM_GRPC_BLOBS_MAX];
};

/* A stream, as its carrier sees it. */
struct lm_http2_stream {
    uint32_t id;                     /* 0: the entry is free */
    uint32_t connection, generation; /* its entry in the table of connections */
    int64_t send_window;
    int64_t recv_window;
    uint64_t body_left;         /* as its head says; UINT64_MAX: its end tells */
    uint32_t shelf_at, shelved; /* bytes that wait on its shelf (http2_shelf.h) */
    uint16_t shelf;             /* 1 + its number; 0: nothing waits */
    bool is_chunked;            /* its body is given on in chunks */
    bool has_ended;             /* the client sends no more */
    bool end_given;             /* and its request knows */
    bool head_sent;
    bool is_done; /* the reply is sent, or the stream was reset */
    struct lm_grpc_call grpc;
};

/* Part of a reply that is being sent. */
struct lm_http2_piece {
    uint32_t stream; /* its place among the streams */
    uint32_t bytes;  /* of its message */
    bool is_last;    /* of the reply */
    bool ends;       /* the stream */
};

/* The memory of a connection that is busy: it carries streams, or frames wait to be sent. A
 * connection gives it back when it becomes idle. */
struct lm_http2_busy {
    struct lm_http2_busy *next_free;
    uint64_t used[LM_HTTP2_PLACE_WORDS]; /* a bit for each place of a stream */
    uint32_t turn;                       /* whose reply is looked at first */
    uint16_t control_used, heads_used;
    uint16_t part_count, sent_count;
    struct msghdr message; /* the batch */
    struct iovec parts[LM_HTTP2_BATCH_PARTS];
    struct lm_http2_piece sent[LM_HTTP2_BATCH_FRAMES];
    uint8_t control[LM_HTTP2_CONTROL_BYTES];
    uint8_t sending[LM_HTTP2_CONTROL_BYTES];
    uint8_t heads[LM_HTTP2_HEADS_BYTES];
    struct lm_http2_stream streams[LM_HTTP2_PLACES];
};

struct lm_http2_carrier {
    uint32_t next_free;
    uint32_t connection; /* its own */
    struct lm_http2_side *side;
    struct lm_http2_busy *busy; /* NULL: it is idle */
    uint32_t watched;           /* streams whose clients hear of changes */
    uint32_t shelved;           /* bytes of its streams that wait on shelves */
    bool is_greeted, is_acked;  /* the preface is here; the client knows our settings */
    bool is_closing;            /* no more streams: GOAWAY is sent, or waits to be */
    bool has_failed;            /* its client made an error: nothing of it is read any more */
    bool is_cut;  /* it was too slow: no more streams, and those whose requests are whole go on */
    bool sends;   /* the ring sends the batch */
    uint8_t kept; /* blocks, by its calls of many messages */
    uint16_t placing; /* 1 + the place of the stream whose slot is received to; 0: none */
    uint8_t preface_at;
    struct lm_http2_reader reader;
    uint32_t last_stream; /* the highest that was opened */
    uint32_t open;        /* streams */
    int64_t send_window, recv_window;
    uint32_t initial_window, frame_max; /* the client's settings */
    uint64_t noticed_ns;                /* when its client was told to go elsewhere; 0: not yet */
    uint64_t sent_ns;                   /* when the ring began to send */
    uint64_t second_ns;                 /* since when: */
    uint32_t causes;                    /* requests, and frames of answers: for */
    uint32_t noise;                     /* other frames */
    uint32_t resets; /* streams that the client reset, or made the server reset */
    struct lm_hpack hpack;
};

_Static_assert(sizeof(struct lm_http2_carrier) <= 256,
               "an idle connection of HTTP/2 costs this much beside its entry of 192 bytes");

/* A connection's, until its client has acknowledged that it has none. */
struct lm_http2_table {
    struct lm_hpack_table table;
    struct lm_http2_table *next_free;
};

/* For bytes that streams do not take yet. */
struct lm_http2_shelves {
    struct lm_mapping memory; /* untouched shelves cost nothing */
    uint16_t free[LM_STREAMS_MAX], free_count;
    uint32_t shelved, room; /* bytes: there are, and there may be */
};

/* One I/O thread's. The memory of what is given back is what is taken next. */
struct lm_http2_side {
    struct lm_mapping entries_memory; /* untouched entries cost nothing */
    struct lm_mapping busy_memory, tables_memory;
    struct lm_http2_shelves shelves;
    struct lm_http2_carrier *entries;
    uint32_t free, used, count;
    struct lm_inflater *inflater; /* for the first bytes of compressed messages */
    struct lm_http2_busy *free_busy;
    struct lm_http2_table *free_table;
    uint32_t busy_used, tables_used;
    uint32_t watched;              /* of all connections */
    uint64_t next_watch_ns;        /* when they are looked at */
    struct lm_hpack_fields fields; /* of the block that is being read */
    char head[LM_HTTP_HEAD_BYTES_MAX];
    char draft[LM_GRPC_DRAFT_BYTES]; /* a call's head and JSON, or its reply */
};

/* The connection's memory for being busy, which it takes here if it has none. There is as much as
 * connections may need. */
static inline struct lm_http2_busy *lm_http2_busy(struct lm_http2_carrier *http2) {
    struct lm_http2_side *side = http2->side;
    if (http2->busy) return http2->busy;
    http2->busy = side->free_busy;
    if (http2->busy) {
        side->free_busy = http2->busy->next_free;
    } else {
        http2->busy = (struct lm_http2_busy *)side->busy_memory.base + side->busy_used++;
    }
    return http2->busy;
}

/* The first place of a stream from this one on; LM_HTTP2_PLACES: there is none. */
static inline uint32_t lm_http2_next(const struct lm_http2_carrier *http2, uint32_t place) {
    for (; http2->open > 0 && place < LM_HTTP2_PLACES; place = (place | 63) + 1) {
        const uint64_t here = http2->busy->used[place / 64] >> place % 64;
        if (here) return place + (uint32_t)__builtin_ctzll(here);
    }
    return LM_HTTP2_PLACES;
}

/* It needs none any more. */
static inline void lm_http2_give_table(struct lm_http2_carrier *http2) {
    /* Its first member; what it held is forgotten. */
    struct lm_http2_table *table = (struct lm_http2_table *)lm_hpack_give_table(&http2->hpack);
    if (!table) return;
    table->next_free = http2->side->free_table;
    http2->side->free_table = table;
}

static inline enum lm_grpc_method_index lm_grpc_method_of(const struct lm_http2_stream *stream) {
    return (enum lm_grpc_method_index)(stream->grpc.method - 1);
}
/* Whether its call may bring several messages, or be answered with several. */
static inline bool lm_grpc_is_long(const struct lm_http2_stream *stream) {
    if (!stream->grpc.method) return false;
    const struct lm_grpc_method *method = &lm_grpc_methods[lm_grpc_method_of(stream)];
    return method->asks_many || method->answers_many;
}

static inline struct lm_http2_carrier *lm_http2_of(const struct lm_io *io,
                                                   const struct lm_connection *carrier) {
    return carrier->in.carried == LM_NO_CONNECTION ? NULL
                                                   : &io->http2->entries[carrier->in.carried];
}
static inline struct lm_connection *lm_http2_connection(struct lm_io *io,
                                                        const struct lm_http2_stream *stream) {
    struct lm_connection *connection = lm_io_connection(io, stream->connection);
    const bool is_there =
        connection->fd != LM_FD_FREE && connection->generation == stream->generation;
    return is_there ? connection : NULL;
}

#endif
