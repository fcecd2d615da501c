/* sim.h: what the parts of the simulation share. main.c says what it is and how to replay a seed.
 *
 * One OS thread. I/O threads and workers are fibers (fiber.c); the kernel (ring_sim.c, network.c)
 * and the clients (client*.c) are taken in turns by the scheduler (schedule.c). Every choice is
 * drawn from one generator (chance.c), so that a seed is a whole history.
 */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim_calls.h"
#include "work/state.h"

/* ---- chance.c: the generator, the time, the trace, the end of a failed run ---- */

extern uint64_t sim_now_ns;
#define SIM_US 1000ull
#define SIM_MS 1000000ull
#define SIM_S 1000000000ull

void sim_seed(uint64_t seed);
uint64_t sim_random(void);
uint32_t sim_below(uint32_t bound);
/* Both ends included. */
uint64_t sim_between(uint64_t low, uint64_t high);
/* 0: never. */
bool sim_one_in(uint32_t n);

extern bool sim_tracing;     /* print as it happens */
extern const char *sim_rule; /* which one is tried, or NULL */
/* At most five numbers, all of them taken as unsigned long long. */
void sim_trace_add(const char *format, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e);
#define SIM_TRACE_AT(format, a, b, c, d, e, ...) \
    sim_trace_add(format, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), (uint64_t)(e))
#define SIM_TRACE(...) SIM_TRACE_AT(__VA_ARGS__, 0, 0, 0, 0, 0, 0)
void sim_trace_print(FILE *file);
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define SIM_CHECK(condition, ...)                \
    do {                                         \
        if (!(condition)) sim_fail(__VA_ARGS__); \
    } while (0)

/* ---- plan.c: what the seed decides beforehand ---- */

enum {
    SIM_MODELS = 5, /* that clients ask for */
    SIM_SHADOW = 5, /* the second version of the first one */
    SIM_SERVED = 6,
    SIM_TENSORS = 4,
    SIM_FREE_MODEL = 4,
    SIM_LENGTH_MAX = 9,
    SIM_MAX_REQUEST_BYTES = 12 << 10
};

/* Of wide sessions: SIM_MODELS times as many as there are workers beside one, at most. */
enum { SIM_HELPERS = SIM_MODELS * 2 };
extern int32_t sim_helper_cpus[SIM_HELPERS];
#define SIM_WIDE_SESSION ((OrtSession *)(void *)sim_helper_cpus)

struct sim_plan {
    uint32_t io_count, worker_count;
    uint32_t runs[SIM_SERVED]; /* LUMEN_RUN_*, of each model */
    bool two_nodes;            /* where there are threads for them */
    bool own;                  /* I/O threads run models beside the workers */
    uint32_t queue_type, idle, allocator_type, overload, overload_status, orca;
    uint32_t connections;    /* entries in each table */
    uint32_t header_buffers; /* of each ring */
    uint32_t descriptors;    /* before EMFILE */
    uint32_t completions;    /* places in the completion queue */
    uint32_t socket_bytes;   /* most of one direction */
    uint32_t clients;
    uint32_t fatal_one_in;  /* operations that fail for good; 0: none */
    uint32_t blip_one_in;   /* EINTR, EAGAIN, ENOBUFS, short: to be tried again */
    uint32_t late_one_in;   /* completions that take long */
    uint32_t full_one_in;   /* pushes that the workers' queue refuses */
    uint32_t switch_one_in; /* calls in which another thread gets a turn */
    uint64_t run_ns_max;    /* a model's Run */
    uint64_t default_timeout_ns;
    uint64_t batch_delay_ns;
    uint32_t header_ms, reply_ms, idle_ms, hang_ms; /* time limits; 0: none */
    uint32_t body_bytes_per_s;
    uint32_t per_address;
    uint32_t age_s;        /* of connections of HTTP; 0: any */
    uint32_t unparked_max; /* 0: connections are not parked */
    bool io_shares_cores;
    bool half_close; /* of HTTP clients that send no more, answers are still wanted */
    uint32_t batch_size;
    uint32_t width; /* cores of a Run that finds other workers idle; 1: always one */
    uint32_t slots; /* of each class; 0: drawn */
    bool plain;     /* headers come whole, sockets hold socket_bytes, both logs are kept: rules.c */
    const lumen_key_config *keys;
    uint32_t key_count;
    uint32_t in_flight_max;
    double rate;
    uint64_t drain_at_ns; /* UINT64_MAX: when all clients have gone */
    uint64_t drain_ns;
    uint32_t cache_bytes;    /* the response cache of all models; 0: none */
    uint32_t shadow_percent; /* of the first model's requests have copies; 0: there is no version */
    uint32_t lies_one_in;    /* Runs that take far longer than their model's others; 0: none */
};
extern struct sim_plan sim_plan;
void sim_plan_draw(void);
void sim_plan_print(FILE *file);

/* The time that each fiber has lost while it had no core. */
extern uint64_t sim_lost_ns[];

/* ---- fiber.c ---- */

struct fiber {
    void *context;
    const char *name;
    bool ended;
    const void *blocked_on; /* NULL: it can run */
    uint64_t wake_at_ns;    /* blocked no longer than that */
    bool woken;             /* before its time */
};

enum { FIBERS_MAX = 8 };
extern struct fiber fibers[FIBERS_MAX];
extern uint32_t fiber_count;

void fibers_reset(void);
void fiber_start(const char *name, void *(*body)(void *), void *argument);
/* The running one, or NULL in the scheduler. */
struct fiber *fiber_self(void);
void fiber_resume(struct fiber *fiber);
/* For fibers: lets the scheduler choose again; or stops until unblocked or until a time. */
void fiber_yield(void);
bool fiber_block(const void *on, uint64_t until_ns);
uint32_t fiber_unblock(const void *on, uint32_t most);

/* ---- network.c: connections between clients and descriptors of the server ---- */

struct stream {
    uint8_t *bytes;
    uint32_t count, capacity;
};

struct client;

struct peer {
    struct stream to_server, to_client;
    struct client *client;
    uint32_t number;
    uint32_t io;         /* whose listener it came to */
    int fd;              /* -1: not accepted yet, or closed */
    int error;           /* that the next operation of the server gets */
    uint32_t operations; /* of the ring, not yet reaped */
    uint64_t server_read, client_read;
    uint32_t low_mark; /* bytes that make it readable; 0 as 1 */
    bool waits;        /* in a listener's backlog */
    bool client_fin;   /* sends no more */
    bool client_gone;  /* neither reads */
    bool reset;        /* by the client or by a fault */
    bool shut_rd, shut_wr;
    bool server_closed; /* the descriptor is closed */
    bool client_reset;  /* what the client sees at its next call */
    bool kept;          /* in the store: open without a descriptor too */
    bool served;        /* it has got an entry in a table of connections */
    bool excused;       /* a fault, or what the server may do: its client may be cut off */
};

enum { PEERS_MAX = 160, FD_FIRST = 100, FDS_MAX = 96 };
extern struct peer peers[PEERS_MAX];
extern uint32_t peer_count, fds_open;

void network_reset(void);
void network_free(void);
/* The client's side. NULL: nobody listens. */
struct peer *peer_connect(struct client *client);
uint32_t peer_client_send(struct peer *peer, const uint8_t *bytes, uint32_t count);
/* > 0 bytes; 0: end of stream; -1: nothing there; -2: reset. */
int peer_client_receive(struct peer *peer, uint8_t *bytes, uint32_t most);
void peer_client_finish(struct peer *peer);
/* With bytes unread, or told to, it is a reset. */
void peer_client_close(struct peer *peer, bool reset);
/* The server's side: what a system call would return; -EAGAIN where it would wait. */
int peer_receive(struct peer *peer, uint8_t *bytes, uint32_t most);
int peer_send(struct peer *peer, const struct iovec *parts, size_t count, size_t skip,
              uint32_t most);
bool peer_can_receive(const struct peer *peer);
/* As poll(2) has it: the low mark is reached, or nothing more will fit or come. */
bool peer_is_readable(const struct peer *peer);
bool peer_can_send(const struct peer *peer);
/* A fault: the connection is dead from here on. */
void peer_break(struct peer *peer, int error);
struct peer *peer_of(int fd);
/* The next of a listener's backlog, NULL when there is none. */
struct peer *listener_next(uint32_t io);
bool listener_is_open(uint32_t io);
int listener_open(uint32_t io);
/* Nobody will ever accept what waits there. */
void listener_abandon(uint32_t io);
/* Gives it a descriptor. */
int peer_accept(struct peer *peer);
/* Nothing of the server's holds it any more. */
void peer_server_closes(struct peer *peer);

/* ---- store.c ---- */

/* What is kept for a connection, or NULL. */
struct peer *store_kept(const struct lm_fd_store *store, uint32_t index);

/* ---- ring_sim.c ---- */

/* Looks for something the kernel could do now, and how long until there may be; `seen` counts
 * possibilities over all sources, of which one is drawn. */
struct choice {
    uint32_t seen;
    uint64_t next_ns; /* earliest time at which there is more */
    void (*act)(void *, uint32_t);
    void *what;
    uint32_t which;
};
void choice_add(struct choice *choice, void (*act)(void *, uint32_t), void *what, uint32_t which);
void choice_at(struct choice *choice, uint64_t at_ns);

void rings_reset(void);
void rings_choose(struct choice *choice);
bool ring_armed(const struct lm_ring *ring, uint32_t index, bool sending);
/* Whether a connection's receive ends without its client's doing anything. */
bool ring_will_end(const struct lm_ring *ring, uint32_t index);
/* Whether the kernel has all operations of a connection. */
bool ring_has_all(const struct peer *peer);
bool ring_accepts(const struct lm_ring *ring);
/* Buffers that are not the kernel's. */
uint32_t ring_buffers_out(const struct lm_ring *ring);
/* Of those, the ones in completions that are not reaped. */
uint32_t ring_buffers_coming(const struct lm_ring *ring);
bool ring_buffer_is_out(const struct lm_ring *ring, int32_t buffer);

/* ---- runtime.c: ONNX Runtime, as far as it is called: it doubles every number ---- */

extern uint32_t runtime_values;    /* alive */
extern uint32_t runtime_runs;      /* in progress */
extern uint64_t runtime_takes_ns;  /* each Run; 0: as the seed says */
extern uint64_t runtime_lies_ns;   /* the same of those whose first number is SIM_LIE */
extern uint64_t runtime_loses_ns;  /* in which a Run's thread has no core, beside that */
extern size_t runtime_keeps_bytes; /* of the registered allocator's memory, by each Run */
void runtime_frees(void);          /* all that was kept */
#define SIM_POISON 4095.0f         /* a first number that makes Run fail */
#define SIM_LIE 4094.0f            /* and one that makes it long: runtime_lies_ns */
void runtime_open(struct lm_ort *ort);

/* ---- pictures.c ---- */

extern uint64_t pictures_slice_ns; /* each slice of a picture; 0: as the seed says */

/* ---- engine.c: the server's side of a run ---- */

extern struct lm_shared sim_shared;
extern struct lm_model_set sim_models;
extern bool sim_draining;
void engine_models(void); /* also resets */
/* Whose session it is; not of a wide one. */
uint32_t engine_model_of(const OrtSession *session);
void engine_open(void);
void engine_start(void);
/* In this turn of an I/O thread it has ended a connection that was too slow, or one too many. */
bool engine_ended_one(uint32_t io);
/* In any turn of any of them. */
bool engine_ended_any(void);
void engine_turn(uint32_t io); /* another one begins */
void engine_drain(uint64_t limit_ns);
bool engine_quiet(void); /* nothing is with the workers, and they sleep */
bool engine_idle(void);  /* and there is no connection */
bool engine_ended(void);
void engine_close(void);

/* ---- invariants.c ---- */

/* Called when an I/O thread is about to wait. */
void check_io(struct lm_io *io, uint64_t timeout_ns);
void check_sweep(const struct lm_io *io);
void check_turn(struct lm_io *io, uint64_t waited_ns, uint32_t completions);
/* Of what the server is about to send by itself. */
void check_sent(const struct msghdr *message);
void check_baseline(void);
void check_reset(void);

/* ---- schedule.c ---- */

/* Runs until `done`, or to a time; false: the time came, or nothing can ever happen. */
bool schedule(bool (*done)(void), uint64_t until_ns);
extern uint64_t sim_steps;

#endif
