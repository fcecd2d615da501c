/* lumen.h: the functions of liblumen_uring.so. What a server and its models are opened with, and
 * the statistics, are in headers of their own, as is what not every program needs (lumen_*.h).
 *
 * One opaque handle and plain-data structs. Called from one control thread (Python's main
 * thread); every function may block except where it says otherwise, none is on a request's path.
 * All functions that can fail return 0 or a negative LUMEN_E*; lumen_last_error() then holds one
 * sentence for the calling thread: what was tried, on what, what was found, the likely cure.
 *
 * Life of a handle: lumen_open, lumen_add_model (1..n), lumen_start, lumen_stop, lumen_wait,
 * lumen_close. lumen_close is allowed at any point and ends what still runs.
 */
#ifndef LUMEN_H
#define LUMEN_H

#include <stddef.h>
#include <stdint.h>

#include "lumen_config.h"
#include "lumen_model_config.h"
#include "lumen_stats.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LUMEN_API __attribute__((visibility("default")))

/* Raised with every change to a struct or a function below; Python refuses a library of another
 * number. */
#define LUMEN_ABI_VERSION 19u

enum {
    LUMEN_OK = 0,
    LUMEN_E_INVALID = -1,     /* an argument or a setting is out of range */
    LUMEN_E_NOMEM = -2,       /* memory could not be mapped or allocated */
    LUMEN_E_IO = -3,          /* a file or a socket refused */
    LUMEN_E_UNSUPPORTED = -4, /* the kernel, the machine or this build cannot do it */
    LUMEN_E_ORT = -5,         /* ONNX Runtime is missing or said no */
    LUMEN_E_MODEL = -6,       /* a model that cannot be served */
    LUMEN_E_STATE = -7,       /* called out of order */
    LUMEN_E_AGAIN = -8        /* lumen_wait: threads still run */
};

/* What the process of a model needs to know. It inherits `fd` and hands all to lumen_serve_process.
 */
typedef struct lumen_process {
    uint64_t bytes;  /* of the memory that it has in common with the server */
    uint64_t at;     /* where in it the model's requests are */
    int32_t fd;      /* of this memory: the server's, closed by exec */
    uint32_t number; /* of the model's process: 1, and one more for each that ended */
    uint32_t workers;
    uint32_t flush_denormals;
    uint32_t gently; /* 1: it opens the model in time that nobody else wants */
    uint32_t reserved;
} lumen_process;

typedef struct lumen_slot_class {
    uint64_t slot_bytes;
    uint32_t slot_count;
    uint32_t reserved;
} lumen_slot_class;

/* The content of a certificate. */
typedef struct lumen_certificate_info {
    int64_t not_before; /* unix time, seconds */
    int64_t not_after;
    uint32_t is_rsa; /* 1: handshakes take three times as long as with P-256 */
    uint32_t reserved;
    char names[1024]; /* the DNS names that it is for, with spaces between them */
} lumen_certificate_info;

/* What lumen_start arrived at. */
typedef struct lumen_info {
    uint32_t port;
    uint32_t io_threads;
    uint32_t workers;
    uint32_t models;
    uint64_t arena_bytes; /* mapped for slots, all I/O threads together */
    uint64_t ready_us;    /* from lumen_open to ready */
    uint32_t slots;
    uint32_t slot_class_count;
    uint32_t tls_port; /* 0: none */
    uint32_t reserved;
    lumen_slot_class slot_classes[LUMEN_SLOT_CLASSES_MAX]; /* of one I/O thread */
    int32_t worker_cpus[LUMEN_WORKERS_MAX];                /* -1: not pinned */
    char io_backend[16];                                   /* "io_uring" or "epoll" */
    char io_detail[128];                                   /* its features in force */
    char ort_version[32];
    char stats_path[64];
    char budgets_path[64]; /* "": there are none */
    char nodes[1024]; /* lines: each node's threads, and where its pages lie; one node has none */
    char notes[1024]; /* lines: what was asked for and could not be had */
} lumen_info;

/* Requests over HTTP that this program answers: POST /v2/repository/index, .../models/M/load and
 * .../models/M/unload. */
enum lumen_errand_kind {
    LUMEN_ERRAND_INDEX = 0,
    LUMEN_ERRAND_LOAD = 1,
    LUMEN_ERRAND_UNLOAD = 2,
    LUMEN_ERRAND_TRACE = 3, /* Triton's settings of traces and of the log: asked for, or changed */
    LUMEN_ERRAND_LOGGING = 4,
    LUMEN_ERRAND_DEMAND = 5 /* a request asks for a model that is not served: code 200, once it is,
                             * else why it cannot be; several requests may wait for it */
};

typedef struct lumen_errand {
    uint32_t id;
    uint32_t kind;    /* enum lumen_errand_kind */
    const char *name; /* of the model; "": the call names none */
    const char *body; /* terminated behind body_bytes */
    uint32_t body_bytes;
    uint32_t reserved;
} lumen_errand;

/* ---- ABI table: every public struct's fields, for a mirror in another language to compare
 * -------- */
typedef struct lumen_abi_field {
    const char *struct_name;
    const char *field_name;
    uint32_t offset;
    uint32_t size;
} lumen_abi_field;

/* Returns the table and its length; the field name "" gives the size of the whole struct. */
LUMEN_API const lumen_abi_field *lumen_abi(uint32_t *abi_version, uint32_t *field_count);
/* All rules between a model's settings; they stay as long as the library. */
LUMEN_API const lumen_rule *lumen_rules(uint32_t *count);
LUMEN_API const char *lumen_version(void);
LUMEN_API const char *lumen_last_error(void);

typedef struct lumen_server lumen_server;

/* Checks the settings, loads ONNX Runtime, reads the machine. No thread runs yet. */
LUMEN_API int lumen_open(const lumen_config *config, lumen_server **server_out);
/* Loads a model and one session per worker. Before lumen_start only. */
LUMEN_API int lumen_add_model(lumen_server *server, const lumen_model_config *model,
                              uint32_t *index_out);
/* Checks a native engine's file, as loading a model with it does; with `whole` all of its weights.
 */
LUMEN_API int lumen_check_engine(const char *path, uint32_t whole);
/* Maps the arenas, starts the threads, listens. Returns when requests are served. */
LUMEN_API int lumen_start(lumen_server *server);
/* Before lumen_start: where this program has its metrics page, for the page at / to say; 0: none.
 */
LUMEN_API int lumen_set_metrics_port(lumen_server *server, uint32_t port);
/* Before lumen_start: the server speaks TLS, on a port of its own. While it serves: other
 * certificates and authorities, from the next handshake on; the ports stay. Everything is copied.
 * On an error nothing has changed. LUMEN_E_UNSUPPORTED: the system has no OpenSSL 3. */
LUMEN_API int lumen_set_tls(lumen_server *server, const lumen_tls_config *config);
/* Reads the content of a certificate; any thread. Only `certificate` and `source` are looked at. */
LUMEN_API int lumen_look_at_certificate(const lumen_certificate *certificate,
                                        lumen_certificate_info *info_out);
/* For trying: a certificate that signs itself, for 90 days, and its key, both PEM. `names` as in
 * OpenSSL's subjectAltName: "DNS:localhost,IP:127.0.0.1". Any thread. */
LUMEN_API int lumen_make_certificate(const char *names, char *certificate_out, char *key_out,
                                     uint32_t capacity);
/* For a model with LUMEN_ISOLATION_PROCESS, named by its process_key, before lumen_start or later,
 * what its next process needs: the caller starts that and reports it with lumen_process_started;
 * lumen_process_is_up then says 1 once it takes requests, and 0 before. When it has ended, and
 * before it is reaped, or could not be started, the caller reports that with lumen_process_ended:
 * the signal, or 256 + its exit status. lumen_next_process returns LUMEN_E_AGAIN while a worker
 * still looks at the last one. lumen_load_model waits for the process: another thread calls these
 * meanwhile. Once no request needs a model that was replaced or unloaded, its process is killed,
 * and these return LUMEN_E_INVALID. */
LUMEN_API int lumen_next_process(lumen_server *server, uint64_t key, lumen_process *process_out);
LUMEN_API int lumen_process_started(lumen_server *server, uint64_t key, int32_t pid);
LUMEN_API int lumen_process_is_up(lumen_server *server, uint64_t key);
LUMEN_API int lumen_process_ended(lumen_server *server, uint64_t key, uint32_t end);
/* In the process of a model: opens it and runs it for the server, and returns only where it cannot
 * begin, with the error. */
LUMEN_API int lumen_serve_process(const lumen_process *process, const char *ort_library_path,
                                  const lumen_model_config *model);
/* Fills info. ort_version is there after lumen_open, slot_classes after lumen_describe, everything
 * else after lumen_start. */
LUMEN_API int lumen_get_info(lumen_server *server, lumen_info *info_out);
/* The models as JSON (UTF-8, not terminated), as `describe` answers it. Returns the whole length;
 * at most `capacity` bytes are written. Before lumen_start it decides what the models serve, as
 * lumen_start does; afterwards no model can be added. */
LUMEN_API int64_t lumen_describe(lumen_server *server, char *buffer, size_t capacity);
/* Which core each thread gets in which node, and why, as lines (UTF-8, not terminated), for the
 * settings and the models that were added. `root` is where /proc and /sys are found: NULL or "" for
 * this machine's, else those of a captured tree. Before lumen_start only. Returns as lumen_describe
 * does. */
LUMEN_API int64_t lumen_plan(lumen_server *server, const char *root, char *buffer, size_t capacity);
/* Takes over the keys, hosts and rate of `config`, and the rates of the models that are
 * named; nothing else there is looked at. Requests that are admitted keep
 * what they had. Refused as a whole, with the sentence, where one of these is wrong. On return new
 * requests are judged by the new table, unless an I/O thread was busy for a second. */
LUMEN_API int lumen_reload(lumen_server *server, const lumen_config *config,
                           const lumen_model_config *models, uint32_t model_count);
/* Loads a model into a running server: under a name of its own, or in the place of the model that
 * has the name. Returns once new requests go to it; those in flight finish with the one before. On
 * an error everything is as it was. Any thread; one load at a time, others wait. The index is where
 * the server keeps what it knows of the name, as long as the name is served. */
enum { LUMEN_LOAD_GENTLY = 1 }; /* flag: takes only what time nobody else wants (SCHED_IDLE) */
LUMEN_API int lumen_load_model(lumen_server *server, const lumen_model_config *config,
                               uint32_t flags, uint32_t *index_out);
/* Takes a model out of a running server: new requests for it are refused as of an unknown model,
 * those in flight are answered. Returns at once, also while models are loaded; one of this name
 * does not come then. Another name may have the index from then on, and another number on the wire.
 */
LUMEN_API int lumen_unload_model(lumen_server *server, const char *name);
/* The name of the model that was asked for longest ago, or came longest ago and was not asked for:
 * not one of those `spared`, nor one that an upstream serves, that is virtual, or that a virtual
 * one runs. LUMEN_E_INVALID where there is none, or `capacity` is too small. Any thread. */
LUMEN_API int lumen_longest_idle(lumen_server *server, const char *const *spared, uint32_t count,
                                 char *name_out, size_t capacity);
/* Puts queue_type, thread_count and allocator_type of the settings in force while the server
 * serves: requests that come from here on find them, those in flight go on as they are. Others of
 * the settings are not looked at. Threads that are not wanted sleep; those that are missing, up to
 * the cores of the server's one node, get sessions of all models first, which takes a while.
 * LUMEN_E_AGAIN: a worker or an I/O thread is in a Run for so long that the change goes on after
 * the return. On any other error nothing has changed, but threads may have come, which sleep. Any
 * thread. */
LUMEN_API int lumen_change_workers(lumen_server *server, const lumen_config *config);
/* Frees what was replaced or unloaded, as lumen_heartbeat does: 0 when nothing is left of it,
 * LUMEN_E_AGAIN when requests in flight still use some after timeout_ms. */
LUMEN_API int lumen_settle(lumen_server *server, uint32_t timeout_ms);
/* Opens the telemetry file and the access log again, soon, and says which form the access log has
 * from now on. What goes wrong is news. */
LUMEN_API int lumen_reopen(lumen_server *server, uint32_t access_as_json);
/* Copies the newest message of the server's threads since the last call: a sentence, terminated, or
 * "". Returns 0. */
LUMEN_API int lumen_news(lumen_server *server, char *buffer, size_t capacity);
/* 0 when every I/O thread has turned its loop since the last call that returned 0; LUMEN_E_AGAIN
 * when one has not yet. For a watchdog; also frees what lumen_reload replaced. */
LUMEN_API int lumen_heartbeat(lumen_server *server);
/* Before lumen_start: requests of some kinds (1 << enum lumen_errand_kind each) are answered by
 * this program, with the functions below. One thread may call lumen_next_errand, any thread the
 * others. A call that loads a model may have a body of so many bytes, at most 4 GiB; 0: as others,
 * at most 8 KiB. */
LUMEN_API int lumen_open_errands(lumen_server *server, uint32_t kinds, uint64_t upload_bytes);
/* The oldest request that waits: 0, or LUMEN_E_AGAIN when there is none for timeout_ms. What
 * errand_out points to is there until lumen_finish_errand. */
LUMEN_API int lumen_next_errand(lumen_server *server, uint32_t timeout_ms,
                                lumen_errand *errand_out);
/* From here on lumen_next_errand does not wait, nor does a call of it that does; any thread. */
LUMEN_API int lumen_end_errands(lumen_server *server);
/* Answers it: HTTP's code, and a body of JSON, which is copied; 0 bytes: none. */
LUMEN_API int lumen_finish_errand(lumen_server *server, uint32_t id, uint32_t code,
                                  const char *body, uint32_t body_bytes);
/* 1: the server says from here on that it is not ready, and goes on serving; 0: it is. */
LUMEN_API int lumen_hold_ready(lumen_server *server, uint32_t hold);
/* Readiness is off from here on; everything is served as before. For load balancers that still have
 * to notice. */
LUMEN_API int lumen_unready(lumen_server *server);
/* Begins the end: new connections are refused, new requests answered "shutting down", what is in
 * flight is finished for at most drain_ms. Returns at once; may be called again with a shorter
 * time. */
LUMEN_API int lumen_stop(lumen_server *server, uint32_t drain_ms);
/* 0 when all threads have ended (also by themselves, after an error that was printed),
 * LUMEN_E_AGAIN when some still run after timeout_ms, LUMEN_E_STATE before lumen_start. */
LUMEN_API int lumen_wait(lumen_server *server, uint32_t timeout_ms);
/* Ends whatever still runs and frees everything. NULL is allowed. */
LUMEN_API void lumen_close(lumen_server *server);
/* The cores this process may use: affinity mask, cgroup cpuset and cpu.max. Returns their number,
 * writes at most `capacity` of them. */
LUMEN_API int lumen_usable_cpus(int32_t *cpus_out, uint32_t capacity);

/* A feature of each row of an array as a rule has it, VARIANCE to EDGES or of an output; any
 * thread. `dtype` is ONNX's number, dims[0] the rows. Returns 0 or LUMEN_E_INVALID. */
LUMEN_API int lumen_feature(uint32_t feature, uint32_t dtype, const int64_t *dims, uint32_t rank,
                            const void *rows, double *values_out);

/* What HTTP answers a request with these headers, NULL where there is none: 0: it is for this
 * server; 421: Host names another; 403: Origin is of a page of another site. `hosts` as
 * server.hosts. Any thread. LUMEN_E_INVALID: too many hosts. */
LUMEN_API int lumen_http_site(const char *const *hosts, uint32_t host_count, const char *host,
                              const char *origin);

/* ---- text: what a file of lumen_uring/text/compile.py makes of it ---- */

typedef struct lumen_tokenizer lumen_tokenizer;

/* Checks and copies the file. Returns 0 or LUMEN_E_*. */
LUMEN_API int lumen_tokenizer_open(const void *file, uint64_t bytes, lumen_tokenizer **handle_out);
/* The ids and types of a text, or of a pair where `second` is not NULL, with special tokens, at
 * most `capacity`. `cut`: where there are more, 0: it is refused, 1: without its end, 2: without
 * its start. Returns their number or LUMEN_E_*. Any thread. */
LUMEN_API int64_t lumen_tokenizer_encode(const lumen_tokenizer *handle, const char *first,
                                         uint64_t first_bytes, const char *second,
                                         uint64_t second_bytes, int64_t *ids, int64_t *types,
                                         uint32_t capacity, uint32_t cut);
/* The text of some ids, with or without special tokens, of which at most `capacity` bytes are
 * written. Returns its length in bytes or LUMEN_E_*. Any thread. */
LUMEN_API int64_t lumen_tokenizer_decode(const lumen_tokenizer *handle, const uint32_t *ids,
                                         uint64_t count, uint32_t skips_special, char *out,
                                         uint64_t capacity);
/* NULL is allowed. */
LUMEN_API void lumen_tokenizer_close(lumen_tokenizer *handle);

#ifdef __cplusplus
}
#endif
#endif
