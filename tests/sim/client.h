/* client.h: simulated clients: a script of requests drawn from the seed, sent and read at a pace of
 * their own, and what each of them must be answered.
 */
#ifndef TESTS_SIM_CLIENT_H
#define TESTS_SIM_CLIENT_H

#include "sim.h"

enum { CLIENTS_MAX = 16, REQUESTS_MAX = 12, NOWHERE = UINT32_MAX };

/* Bit s: native status s. */
#define STATUS(s) (1u << (s))
/* What a request that fits may get instead, as the plan has it. */
#define STATUS_REFUSALS (STATUS(LM_STATUS_OVERLOADED) | STATUS(LM_STATUS_SHUTTING_DOWN))

enum request_kind { ASK_INFER, ASK_PING, ASK_DESCRIBE, ASK_BAD, ASK_DOCUMENT, ASK_STATS };

/* A file of a picture: a PNG's head, a row of the model that takes them, and a byte. */
enum {
    SIM_FILE_HEAD = 33,
    SIM_FILE_FLOATS = 48,
    SIM_FILE_BYTES = SIM_FILE_HEAD + SIM_FILE_FLOATS * 4 + 1,
    SIM_BROKEN = 1
};

struct expect {
    uint64_t id;
    enum request_kind kind;
    uint32_t model, rows, salt;
    uint32_t length;   /* of each row of the model whose rows have any */
    uint32_t statuses; /* native: those that are right; HTTP: those that refuse */
    uint32_t code;     /* HTTP: what is right but for these */
    const struct lm_oip_document *document;
    bool pixels;
    bool files;        /* of pictures, instead; see pictures.c */
    bool broken;       /* the last one of them cannot be decoded */
    bool binary;       /* HTTP: the outputs are asked for as binary */
    bool named;        /* HTTP: rows with names, of whole inputs */
    bool no_body;      /* HTTP: HEAD */
    bool ends;         /* the connection goes on no more after it */
    bool may_end;      /* or may not */
    bool continues;    /* waits for "100 Continue" before its body */
    bool is_call;      /* of gRPC */
    uint32_t messages; /* of a stream of them; 0: it is none */
    bool answered;
    uint32_t body; /* offset of its body, and of its end, in what is sent */
    uint32_t end;
};

enum client_state { CLIENT_AWAY, CLIENT_TALKS, CLIENT_DONE };

struct client {
    uint32_t number;
    enum client_state state;
    bool http;   /* of any version */
    bool http2;  /* in streams */
    bool strict; /* nothing of what it does allows the server to leave a request unanswered */
    struct peer *peer;
    uint64_t next_ns;
    uint64_t began_ns; /* of waiting for something */
    uint64_t owed_ns;  /* since when request `owed`, which needs no worker, could be answered */
    uint32_t owed;
    uint64_t hold_ns; /* until when it waits for "100 Continue" */

    uint8_t *out;
    uint32_t out_bytes, out_room, out_sent;
    uint32_t said; /* bytes beside these: answers to what it reads, over HTTP/2 */
    struct expect expects[REQUESTS_MAX + 1];
    uint32_t expect_count, answered;
    uint32_t last;  /* index of the last request that is answered; NOWHERE: no end in sight */
    bool continued; /* "100 Continue" has come for the request that waits */
    uint8_t *in;
    uint32_t in_bytes, in_room;

    /* How it behaves. */
    uint64_t pace_ns;
    uint32_t write_most, read_most, window;
    uint32_t reset_at, cut_at; /* offsets in what is sent, or NOWHERE */
    bool reads, half_closes, stubborn, finished;
    uint64_t stay_ns;  /* how long it stays after its last answer */
    uint64_t leave_ns; /* when it goes, whatever there is; UINT64_MAX: when it has its answers */
};

extern struct client clients[CLIENTS_MAX];

void clients_draw(void);
bool clients_done(void);
/* Everyone still there goes. */
void clients_leave(void);
void clients_free(void);
void clients_choose(struct choice *choice);
void client_wake(struct client *client);

/* For client_native.c and client_http.c. */
void client_put(struct client *client, const void *bytes, size_t count);
struct expect *client_expect(struct client *client, enum request_kind kind);
_Noreturn void client_fail(const struct client *client, const char *what, uint64_t a, uint64_t b);
/* Takes the answer to a request; `end`: it said that it is the last one. */
void client_answered(struct client *client, struct expect *expect, bool end);
float client_value(const struct expect *expect, uint32_t input, uint32_t at);
uint32_t client_floats(const struct expect *expect, uint32_t input);
uint32_t client_inputs(const struct expect *expect);
/* The request's tensors or pixels, as bytes. */
void client_put_input(struct client *client, const struct expect *expect, uint32_t input);
void client_check_output(const struct client *client, const struct expect *expect, uint32_t output,
                         const uint8_t *bytes, uint32_t count);

/* Each draws one request; and takes one answer from the front of `in`: its bytes, 0 for more. */
void native_draw(struct client *client, bool is_last);
uint32_t native_take(struct client *client);
void http_draw(struct client *client, bool is_last);
uint32_t http_take(struct client *client);
void http2_draw(struct client *client, bool is_last);
uint32_t http2_take(struct client *client);

/* A request that may come in a stream: of HTTP/1.1, and none that ends its connection. */
void http_draw_streamed(struct client *client);
/* Whether an answer is right. */
void http_check(struct client *client, const struct expect *expect, uint32_t code, bool is_eviction,
                int64_t json_bytes, const uint8_t *body, uint32_t bytes);

/* The head of a request in a stream, field by field; then both. */
void http2_begin(void);
void http2_add(const char *name, const char *value);
void http2_put(struct client *client, struct expect *expect, uint32_t stream, const uint8_t *body,
               uint32_t bytes);
/* A call of gRPC in a stream; and whether its status and its messages are right. */
void grpc_draw(struct client *client, uint32_t stream);
void grpc_check(const struct client *client, const struct expect *expect, int64_t status,
                const uint8_t *body, uint32_t bytes);

/* Sends what a client of HTTP/2 has to say between two frames of its script; true: it has not said
 * all of it. */
bool http2_says(struct client *client, bool *moved_out);
/* Whether it is in the middle of a frame, or of a header block. */
bool http2_is_amid(const struct client *client);
/* How much of its script may come next, of `count`; and how much came. */
uint32_t http2_within(const struct client *client, uint32_t count);
void http2_sent(const struct client *client, uint32_t count);
void http2_free(void);

#endif
