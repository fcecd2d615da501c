/* growth.h: what a worker that comes while the server serves needs of the parts of the server. Any
 * thread that holds `changing`, while `grows` is set: no set of models ends. A set stands for
 * itself and for those that it has replaced, whose last requests new workers may get.
 */
#ifndef LM_SERVER_GROWTH_H
#define LM_SERVER_GROWTH_H

#include "server/state.h"

/* Returns LUMEN_E_STATE with its sentence once the server drains; else 0. */
static inline int lm_server_check_phase(const lumen_server *server) {
    /* relaxed: guards nothing */
    return lm_load_relaxed_u32(&server->shared.phase) == LM_PHASE_DRAINING
               ? lm_error(LUMEN_E_STATE, "the server has ended")
               : 0;
}

/* server/memory.c: a session of each model, for one worker. Returns 0 or LUMEN_E_*. */
int lm_server_open_later_sessions(lumen_server *server, const struct lm_model_set *set,
                                  uint32_t worker);
/* Of a worker that does not come. */
void lm_server_close_later_sessions(lumen_server *server, const struct lm_model_set *set,
                                    uint32_t worker);

/* server/process.c: the processes of models are to serve so many workers; the caller holds
 * `control`. */
void lm_server_want_of_processes(const struct lm_model_set *set, uint32_t workers);
/* Waits until they do. Returns 0 or LUMEN_E_*. */
int lm_server_await_processes(lumen_server *server, const struct lm_model_set *set,
                              uint32_t workers);

/* server/threads.c: a thread for the first place that has none; it warms all models, and sleeps
 * until a line wants it. Returns 0 or LUMEN_E_*. */
int lm_server_add_worker(lumen_server *server);

#endif
