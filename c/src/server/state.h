/* state.h: one server, as its control thread sees it. For the files of this folder alone. */
#ifndef LM_SERVER_STATE_H
#define LM_SERVER_STATE_H

#include "base/common_memory.h"
#include "base/cuda_host.h"
#include "flow/listen_unix.h"
#include "flow/slot_plan.h"
#include "io.h"
#include "parts/placement.h"
#include "work/state.h"
#include "work/telemetry.h"

#ifndef LUMEN_VERSION
#define LUMEN_VERSION "0.0.0"
#endif

enum server_state { SERVER_OPEN, SERVER_RUNNING, SERVER_ENDED };

struct lumen_server {
    struct lm_shared shared;
    enum server_state state;
    bool threads_joined;
    bool memory_locked;
    bool tls_only; /* nobody listens for plain TCP */
    char host[LM_HOST_BYTES_MAX];
    struct lm_unix_file unix_file;
    uint64_t opened_ns;
    uint64_t beat;                 /* the turn that lumen_heartbeat asked for */
    uint64_t sealing;              /* the turn after which the line before is sealed; 0: none is */
    bool auto_request, auto_arena; /* max_request_bytes and arena_bytes follow from the models */
    bool by_time;                  /* engine.queue_type is auto: I/O threads run what is short */
    bool all_inline;               /* I/O threads run every request of one row */
    bool grows;                    /* a worker is being set up: replaced sets stay */
    uint32_t thread_total;         /* worker threads that there are, the first places */
    uint64_t descriptors;          /* that may be open, where those are too few */
    lumen_info info;
    char name[LM_SERVER_NAME_BYTES_MAX]; /* for clients */
    char cores[LM_CORES_BYTES_MAX];      /* engine.cores */
    struct lm_machine machine;
    struct lm_placement placement;
    struct lm_common_memory common;        /* with processes of models; shared.common: it is open */
    struct lm_model_set *set;              /* as it will be in force, or is */
    uint32_t signatures[LUMEN_MODELS_MAX]; /* that models of each index have had */
    uint16_t numbers[LUMEN_MODELS_MAX];    /* of the name at each index; server/names.c */
    uint16_t last_number;
    uint32_t names_max;                       /* at a time: LUMEN_MODELS_MAX, but in tests */
    uint64_t left[LUMEN_MODELS_MAX], leaving; /* the larger, the later its name went */
    struct lm_loading *loading;               /* the model that is being loaded, or NULL */
    pthread_mutex_t changing; /* held for a load, or a change of workers: one at a time */
    pthread_mutex_t control;  /* what the short calls look at: the set, the state, the tables */
    bool comes;               /* a model is being loaded, and may have slots already */
    uint32_t metrics_port;    /* of another program part, 0: none; the page names it */
    struct lm_io ios[LUMEN_IO_THREADS_MAX];
    struct lm_worker workers[LM_ANSWERERS_MAX];
    pthread_t shadow; /* that runs copies of requests */
    bool shadow_started;
    struct lm_telemetry telemetry;
    struct lm_span_store spans;
    char *telemetry_path;                /* NULL: none */
    char *access_path;                   /* NULL: none */
    struct lm_fallback_names *fallbacks; /* NULL: no model has any */
    struct lm_cuda_host cuda;
    uint32_t cuda_locked; /* arenas, the first ones */
};

/* Puts the fallbacks' names in the place of the indexes that they have in this set, before it is in
 * force; forgets them. */
void lm_server_bind_fallbacks(lumen_server *server, const struct lm_model_set *set);
void lm_server_forget_fallbacks(lumen_server *server);

/* One line more for people. */
void lm_server_note(lumen_server *server, const char *line);

/* server/node.c */
/* Reads the machine and decides how many workers' threads there are; opens the memory of Runs.
 * Returns 0 or LUMEN_E_*. */
int lm_server_place_workers(lumen_server *server);
/* Once the models are known, decides who runs them, how many I/O threads there are and on which
 * cores, and the slots, and with them the largest sizes that the models serve; a second call
 * changes nothing. Returns 0 or LUMEN_E_*. */
int lm_server_plan_slots(lumen_server *server);
/* Decides for one model what the plan decided for those before: the server runs, with the slots it
 * has. Returns 0 or LUMEN_E_*. */
int lm_server_settle_model(lumen_server *server, struct lm_model *model);
/* Opens the I/O threads' state and the queues, once the models are known; workers open their own.
 * Returns 0 or LUMEN_E_*. */
int lm_server_open_nodes(lumen_server *server);
/* No thread runs; the models and the memory of Runs are still there. */
void lm_server_close_nodes(lumen_server *server);
/* Decides anew whether I/O threads look for work while they wait: the number of workers changes. */
void lm_server_share_cores(lumen_server *server);

/* server/slots.c */
/* Once the models and workers are known: limits that nobody set are raised to what one row of each
 * model needs, within a share of the memory. */
void lm_server_fit_limits(lumen_server *server);
/* Of one I/O thread. */
struct lm_slot_plan_limits lm_server_slot_limits(const lumen_server *server);
/* Finds slots for a model that comes while the server runs. Returns 0 or LUMEN_E_*. */
int lm_server_make_room(lumen_server *server, struct lm_model *model);
/* Asks those back that no model needs any more, and frees what is back; the caller holds `control`.
 * false: some are not back yet. */
bool lm_server_leave_room(lumen_server *server);

/* server/workers.c */
/* Seals the line that was replaced, once no I/O thread pushes to it; the caller holds `control`.
 * false: one may still do so. */
bool lm_server_seal(lumen_server *server);

/* server/tls.c */
/* Some connections will speak TLS. Returns 0 or LUMEN_E_*. */
int lm_server_hold_sessions(lumen_server *server);
/* Listens for clients that speak TLS, if any may. Returns 0 or LUMEN_E_*. */
int lm_server_listen_tls(lumen_server *server);

/* server/models.c */
/* A set without models, or NULL. */
struct lm_model_set *lm_server_new_set(void);
/* Nobody uses the set: closes it, and the models that no other set lists. */
void lm_server_close_set(lumen_server *server, struct lm_model_set *set);
/* The models that a virtual one may run. */
struct lm_parts {
    struct lm_model *at[LUMEN_MODELS_MAX]; /* each at its index */
    uint32_t known;                        /* 1 + the last index */
};
/* The caller holds `control`, or no thread runs. */
struct lm_parts lm_server_parts(const lumen_server *server);
/* Opens a model with the sessions of the workers' threads. Returns 0 or LUMEN_E_*. */
int lm_server_open_model(lumen_server *server, const lumen_model_config *config, uint32_t index,
                         struct lm_parts *parts, struct lm_model **model_out);
/* No set lists it. */
void lm_server_close_model(lumen_server *server, struct lm_model *model);
/* Writes what describe says of the set's models. Returns 0 or LUMEN_E_NOMEM. */
int lm_server_describe_set(struct lm_model_set *set);
/* Writes what HTTP says of them, once the ports are known; it shares with the set `before`, if any,
 * what did not change. Returns 0 or LUMEN_E_NOMEM. */
int lm_server_document_set(const lumen_server *server, struct lm_model_set *set,
                           const struct lm_model_set *before);

/* Makes another set of the one in force: without the model of that index, and with `model`, if any.
 * The caller holds `control`, as of the next two. Returns 0 or LUMEN_E_NOMEM. */
int lm_server_make_set(lumen_server *server, uint32_t index, struct lm_model *model,
                       struct lm_model_set **set_out);
void lm_server_publish_set(lumen_server *server, struct lm_model_set *next);
/* The same models, described anew: without memory for that the old words stay. */
void lm_server_describe_anew(lumen_server *server);

/* server/names.c */
/* Where a model's name is kept. */
struct lm_name_place {
    uint32_t index;
    uint16_t number;  /* by which native clients call it */
    bool is_anothers; /* of a name that went */
    uint64_t rounds;  /* of the telemetry's thread, when that was seen */
};
/* Finds a name's place, or one for it; the caller holds `control`. Returns 0, LUMEN_E_INVALID where
 * all are taken, or LUMEN_E_AGAIN where the last requests of one that went are not answered. */
int lm_server_find_place(lumen_server *server, const char *name, struct lm_name_place *place_out);
/* Waits until the lines of the name that went are written; nobody holds `control`. Returns 0 or
 * LUMEN_E_AGAIN. */
int lm_server_await_lines(lumen_server *server, const struct lm_name_place *place);
/* Gives the place to the model's name, before it and `access` are in force. Returns 0 or LUMEN_E_*.
 */
int lm_server_take_place(lumen_server *server, const struct lm_name_place *place,
                         const struct lm_model *model, struct lm_access *access);
/* Before a virtual model is in force: where what it runs is counted. */
void lm_server_name_experts(lumen_server *server, struct lm_model *model);
/* The name is unloaded. */
void lm_server_leave_place(lumen_server *server, uint32_t index);

/* server/live.c */
/* A model that is being loaded; what went wrong is told on the thread that asked. */
struct lm_loading {
    lumen_server *server;
    const lumen_model_config *config;
    struct lm_name_place place;
    struct lm_parts parts; /* as they were when it began; an unload leaves those it runs alone */
    bool gently;
    bool is_called_off;         /* under `control` */
    struct lm_process *process; /* under `control`; its model's, once it may be started; or NULL */
    struct lm_model *model;
    int code;
    char error[768];
};
/* Closes the replaced sets that nobody uses any more. */
void lm_server_reap(lumen_server *server);
/* Says of models whose Runs were too long for I/O threads that the workers run them now, once, also
 * where the set describes its models. false: there is nothing to say. */
bool lm_server_tell_long_runs(lumen_server *server, char *text, size_t text_bytes);

/* server/process.c */
/* Lets a process of its own run the model. Returns 0 or LUMEN_E_*. */
int lm_server_isolate(lumen_server *server, struct lm_model *model,
                      const lumen_model_config *config);
/* Once there are slots. Returns 0 or LUMEN_E_NOMEM. */
int lm_server_open_rooms(const lumen_server *server, struct lm_process *process);
/* Has the process of a model that comes started, by Python's main thread, and waits until it takes
 * requests. Returns 0 or LUMEN_E_*. */
int lm_server_await_process(struct lm_loading *loading);
/* The model does not come: nobody starts its process any more. */
void lm_server_leave_process(struct lm_loading *loading);
/* The sentence for it. Returns LUMEN_E_STATE. */
int lm_server_called_off(const struct lm_loading *loading);
/* Whether a process of one of these models is being started; the caller holds `control`. */
bool lm_server_starts_process(const struct lm_model_set *set);

/* server/memory.c */
/* Gives each node a copy of a model's weights, and its workers' threads sessions on it. Returns 0
 * or LUMEN_E_*. */
int lm_server_copy_weights(lumen_server *server, struct lm_model *model);
/* The sessions of the I/O threads' workers. Returns 0 or LUMEN_E_*. */
int lm_server_open_sessions(lumen_server *server);
/* The same of one model. */
int lm_server_open_io_sessions(lumen_server *server, struct lm_model *model);
/* A line for each node, with where its pages lie. */
void lm_server_describe_nodes(lumen_server *server);
/* Locks the pages of the arenas for the GPU, where CUDA computes a model. Returns 0, or
 * LUMEN_E_UNSUPPORTED with what comes of that: it may go on. */
int lm_server_lock_for_gpu(lumen_server *server);
void lm_server_unlock_for_gpu(lumen_server *server);

/* server/width.c */
/* Decides for each model how many cores a Run may use, once its largest sizes are known, and opens
 * what that needs. Runs models that take long enough to be worth it. */
void lm_server_widen(lumen_server *server);

/* server/traffic.c */
/* Starts the thread that runs copies of requests, if this traffic asks for any; the other threads
 * run. Returns 0 or LUMEN_E_NOMEM. */
int lm_server_follow_traffic(lumen_server *server, const struct lm_traffic *traffic);

/* server/threads.c */
/* Starts all threads, waits until each is set up, and lets them go; or home, where one could not
 * be. */
int lm_server_start_threads(lumen_server *server);
/* The thread that runs copies of requests, unless it is there. Returns 0 or LUMEN_E_NOMEM. */
int lm_server_start_shadow(lumen_server *server);
/* Waits for those that were started. */
void lm_server_join_threads(lumen_server *server);

#endif
