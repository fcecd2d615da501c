/* server.h: one server, as its control thread sees it. For server*.c alone. */
#ifndef LM_SERVER_H
#define LM_SERVER_H

#include "flow/listen_unix.h"
#include "io.h"
#include "work/telemetry.h"
#include "work/worker.h"

enum server_state { SERVER_OPEN, SERVER_RUNNING, SERVER_ENDED };

struct lumen_server {
    struct lm_shared shared;
    enum server_state state;
    bool threads_joined;
    char host[LM_HOST_BYTES_MAX];
    struct lm_unix_file unix_file;
    uint64_t opened_ns;
    uint64_t beat;        /* the turn that lumen_heartbeat asked for */
    uint64_t descriptors; /* that may be open, where those are too few */
    lumen_info info;
    struct lm_model_set set;
    uint32_t metrics_port; /* of another program part, 0: none; the page names it */
    struct lm_io ios[LUMEN_IO_THREADS_MAX];
    struct lm_worker workers[LUMEN_WORKERS_MAX];
    struct lm_telemetry telemetry;
    char *telemetry_path; /* NULL: none */
    char *access_path;    /* NULL: none */
};

/* One line more for people. */
void lm_server_note(lumen_server *server, const char *line);

/* server_node.c */
/* Decides how many threads there are and on which cores; opens the memory of Runs. */
void lm_server_place_node(lumen_server *server);
/* Decides the slots, once the models are known, and with them the largest sizes that the models
 * serve; a second call changes nothing. Returns 0 or LUMEN_E_INVALID. */
int lm_server_plan_slots(lumen_server *server);
/* Opens the I/O threads' state and the queue, once the models are known; workers open their own.
 * Returns 0 or LUMEN_E_*. */
int lm_server_open_node(lumen_server *server);
/* No thread runs; the models and the memory of Runs are still there. */
void lm_server_close_node(lumen_server *server);

/* server_threads.c */
/* Starts all threads, waits until each is set up, and lets them go; or home, where one could not
 * be. */
int lm_server_start_threads(lumen_server *server);
/* Waits for those that were started. */
void lm_server_join_threads(lumen_server *server);

#endif
