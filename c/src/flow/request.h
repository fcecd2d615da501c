/* request.h: what is known of one request while it holds a slot. Entry i of an I/O thread's table
 * belongs to slot i; whoever holds the slot (I/O thread, then queue, then worker, then I/O thread)
 * alone touches it.
 */
#ifndef LM_FLOW_REQUEST_H
#define LM_FLOW_REQUEST_H

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/limits.h"
#include "base/native_codec.h"
#include "flow/bulk.h"
#include "flow/shadow_jobs.h"
#include "formats/oip_request.h"
#include "models/layout.h"
#include "models/runner.h"
#include "parts/budgets.h"
#include "parts/keyed_hash.h"
#include "parts/spill.h"
#include "parts/trace.h"

/* Of so many tensors. */
#define LM_SHAPE_BLOCK_BYTES(tensors) (4 * (1 + (size_t)(tensors) * (1 + LM_RANK_MAX)))

/* How a request left its worker. */
enum lm_outcome {
    LM_OUTCOME_SENT,    /* the reply is with the kernel, whole */
    LM_OUTCOME_PARTIAL, /* its first bytes are; the connection's send token is still held */
    LM_OUTCOME_UNSENT,  /* another reply holds the token */
    LM_OUTCOME_BROKEN,  /* the socket failed */
    LM_OUTCOME_DROPPED, /* the client had gone */
    LM_OUTCOME_OVERDUE  /* the I/O thread has answered in its worker's place */
};

#define LM_PIXELS_UNKNOWN UINT64_MAX

struct lm_io;
struct lm_model_set;
struct lm_region;

/* A place in a region, as a request names it. */
struct lm_span {
    uint64_t offset, bytes;
};

/* A request for a model, as far as its header describes it. */
struct lm_demand {
    const struct lm_model *model;
    struct lm_sizes sizes;
    uint64_t pixels;     /* of its pictures, guessed by the bytes */
    uint64_t bytes;      /* of its body; 0: not known */
    uint64_t timeout_us; /* 0: the server's default */
    uint8_t encoding;    /* LM_ENCODING_* */
    bool is_unread;      /* its worker reads in the body what else it asks, such as a deadline */
};

/* Where the bytes of a request's tensors lie when it is handed over (flow/carrier.h). */
enum lm_carrier_index {
    LM_CARRIER_SLOT,   /* in its slot, as its encoding wants them */
    LM_CARRIER_FILE,   /* in its slot: the body is a picture's file */
    LM_CARRIER_FORM,   /* in its slot: the body is a form, which holds a picture's file */
    LM_CARRIER_CODED,  /* in its slot, compressed: text, a picture's file or a form */
    LM_CARRIER_REGION, /* in the region that its connection shares with its client (region.h) */
    LM_CARRIER_SHM,    /* in regions that clients have registered (parts/shm_regions.h) */
    LM_CARRIER_COUNT
};

/* A body that is received in one piece: text, a file, or what is compressed. */
struct lm_body {
    char *text;
    size_t bytes; /* received so far, or all of it */
    size_t room;
    size_t inflated_room; /* for what a compressed one holds */
    int64_t json_bytes;   /* of the text; -1: all of it */
    uint8_t coding;       /* how it is compressed: enum lm_coding */
};

/* How a client wants its answer said, beyond what its text asks. */
struct lm_reply_wish {
    uint8_t top;   /* so many classes of a picture; 0: not said */
    uint8_t route; /* enum lm_http_route: whose clients ask */
    uint8_t load;  /* enum lm_load_form */
};

/* An answer that is looked at once more when its slot is back: by the response cache, which may
 * keep it (flow/answer_cache.h), or by a comparison with another version's (flow/shadow.h). */
struct lm_keeping {
    bool wanted;           /* its worker is to say where it lies */
    bool whole;            /* which it has done */
    bool for_cache;        /* which has none to this request */
    bool is_hit;           /* the cache had one: no worker saw the request */
    size_t block_bytes;    /* of shapes, in `prefix` */
    struct iovec *outputs; /* in the slot, one for each output */
    struct lm_digest digest;
};

struct lm_request {
    struct lm_io *io; /* whose slot it is */
    struct lm_slot *slot;
    const struct lm_model *model;  /* NULL: a reply of the I/O thread itself */
    const struct lm_model *expert; /* that runs in the model's place; NULL: it runs itself */
    struct lm_model_set *models;   /* that the model is of, or what the reply points to */
    uint32_t connection;
    uint32_t next_reply; /* of the same connection, in order of being sent */
    uint64_t id;
    uint64_t held_ns; /* since when its slot waits for the client: to send, or to take the reply */
    uint64_t started_ns;  /* first byte of the header seen */
    uint64_t received_ns; /* last byte of the body seen: published to the queue */
    uint64_t popped_ns;
    uint64_t preprocessed_ns;
    uint64_t inferred_ns;
    uint64_t deadline_ns; /* UINT64_MAX: none */
    uint64_t cost_ns;     /* what it is expected to take of a worker; see gate.c */
    uint64_t worked_ns;   /* what it took of one */
    uint64_t seen_ns;     /* eviction.c: when it was last seen to move, 0: not looked at yet */
    uint64_t seen_bytes;  /* and how far it was then */
    struct lm_sizes sizes;
    uint64_t pixels;     /* of its pictures: guessed, until their files are here */
    uint32_t batch_rows; /* of the Run it was part of; 0: none */
    bool leads;          /* it is that Run's first request */
    uint8_t width;       /* cores of that Run */
    bool disturbed;      /* it lost some of them meanwhile */
    uint64_t wide_ns;    /* what that Run took, where it had several */
    uint8_t expert_at;   /* which of the model's experts `expert` is */
    bool goes_on;        /* the lighter expert was not sure: the next one runs */
    bool converted;      /* the pixels are in the tensor already */
    uint32_t payload_bytes;
    uint32_t key;                 /* whose it is; LM_NO_KEY: nobody's */
    uint32_t tokens;              /* of its texts, once they are answered */
    struct lm_budget_tally tally; /* what it has of budgets */
    uint16_t status;              /* enum lm_status, of the reply */
    uint16_t flags;
    uint8_t encoding; /* LM_ENCODING_*: what its body holds */
    uint8_t carrier;  /* enum lm_carrier_index: where that lies */
    uint8_t dialect;  /* enum lm_dialect_index */
    uint8_t outcome;  /* enum lm_outcome */
    bool is_unread;   /* as in lm_demand */
    bool is_timed;    /* the head of an unread one says a deadline: the body's may only be sooner */
    bool stands_in;   /* its model is in the place of the one that its body names */
    bool last;        /* the connection ends after its reply */
    bool in_pieces;   /* the message is a piece of its reply: others come (lm_reply_piece) */
    uint32_t fed_by;  /* from this connection, which is marked when the piece is sent */
    bool suspended;   /* of no cost yet: its body takes its time */
    bool placed;      /* counts against max_in_flight; whoever holds the slot may end that */
    bool probe;       /* tests the estimate of its model's cost; see gate.c */
    bool is_long;     /* by that estimate, which a probe does not show: several cores may pay */
    bool with_worker; /* I/O thread only: handed over, not back yet, and not answered here */
    lm_atomic_u64
        overdue_ns;      /* the deadline, for the I/O thread to look at while a worker has it */
    lm_atomic_u32 claim; /* taken by whoever answers: 0 nobody yet */
    bool holds_shm;      /* registered regions stay until lm_slots_leave_shm */
    bool owner_has_part; /* there are several keys: its owner may have a part of the sequences */
    bool in_batch;       /* the reply points into its worker's batch */
    bool is_loose;       /* ONNX Runtime has allocated its outputs: their shapes were unfit */
    uint32_t part_count;
    uint32_t part_at;
    /* The lists, here and in `layout` and `asked`, are in the slot's part of those of the set: they
     * have room for each of its models. */
    uint32_t lists;      /* their number; 0: none yet */
    struct iovec *parts; /* what is still to be received, the front one shrinking */
    struct lm_layout layout;
    struct lm_body body;
    struct lm_oip_request *asked; /* what its text asks, or would ask; among the lists */
    uint64_t owner;               /* its key, as lm_key_owner has it; 0: it has none */
    struct lm_sequence_turn turn; /* of its sequence, while its model runs */
    struct lm_region *region;     /* NULL: its carrier is another */
    const struct lm_span *spans;  /* of its inputs, then of its outputs; in the slot */
    struct msghdr message;        /* the reply, as sendmsg wants it */
    struct iovec *reply;
    uint8_t head[LM_NATIVE_REPLY_BYTES];
    uint8_t *prefix;         /* of the reply: shapes */
    struct lm_spill *spills; /* parts of the reply that are beside the slot */
    struct lm_keeping keeping;
    struct lm_shadow_run shadow;
    struct lm_reply_wish wish;
    uint8_t turn_wanted;        /* enum lm_texts_turn, before its body was read */
    struct lm_bulk_share share; /* where it has many texts */
    /* For traces, and for the access log. */
    struct lm_trace_context context;
    struct lm_trace_client client;
    char why[LM_TRACE_WHY_BYTES]; /* "" where nothing went wrong */
};

/* Bytes of a request's lists, where no model has more inputs and outputs. */
size_t lm_request_lists_bytes(uint32_t inputs, uint32_t outputs);
/* Lays them out. */
void lm_request_hold_lists(struct lm_request *request, uint8_t *memory, uint32_t inputs,
                           uint32_t outputs);

/* true: the caller answers this request, and nobody else does. A worker asks when it knows the
 * answer, the I/O thread when the deadline has long passed. */
static inline bool lm_request_claim(struct lm_request *request) {
    /* C1: acq_rel: the second sees the first; the slot crosses with the queues; pairs with C1 */
    return lm_exchange_acq_rel_u32(&request->claim, 1) == 0;
}

/* For the access log: what went wrong. */
static inline void lm_request_set_why(struct lm_request *request, const char *why) {
    size_t bytes = strnlen(why, sizeof request->why - 1);
    memcpy(request->why, why, bytes);
    request->why[bytes] = '\0';
}

/* The model that runs: its session, its width. */
static inline const struct lm_model *lm_request_runs(const struct lm_request *request) {
    return request->expert ? request->expert : request->model;
}

/* The optional inputs of the model that it brings: bit n of the n-th; JSON alone has some. */
static inline uint32_t lm_request_optionals(const struct lm_request *request) {
    return request->encoding == LM_ENCODING_JSON ? request->asked->optionals : 0;
}

/* A request's wishes of a model of texts. Only HTTP's routes of texts can have any. */
static inline struct lm_text_ask lm_request_text_ask(const struct lm_request *request) {
    return request->encoding == LM_ENCODING_TEXTS ? request->asked->texts.ask
                                                  : (struct lm_text_ask){0};
}

/* Whether its tensors are used where they lie, by what is no session of this process: the places of
 * all outputs are known, and hold them after the Run. */
static inline bool lm_request_is_in_place(const struct lm_request *request) {
    return lm_runner_of(lm_request_runs(request))->run_in_place && request->model->outputs_known &&
           request->model->string_outputs == 0 && !lm_request_optionals(request) &&
           !lm_request_text_ask(request).all_tokens;
}

/* The reply is in the first `parts` entries of `reply`. */
static inline void lm_request_set_message(struct lm_request *request, uint32_t parts) {
    request->message = (struct msghdr){.msg_iov = request->reply, .msg_iovlen = parts};
}

/* A timeout of centuries is none. */
static inline uint64_t lm_deadline_after(uint64_t started_ns, uint64_t timeout_us) {
    return timeout_us < UINT64_MAX / 2000 ? started_ns + timeout_us * 1000 : UINT64_MAX;
}

#endif
