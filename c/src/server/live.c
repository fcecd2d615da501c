/* live.c: models that come and go while a server serves: loaded under a new name, loaded in
 * the place of another, unloaded. Any thread of the process that holds the server; one load at a
 * time (`changing`). What a change makes visible happens under `control`, which is held for
 * moments: an unload waits for no load, and calls the load of its own model off. Nothing here is on
 * a request's path.
 *
 * A model is opened and warmed beside the ones that serve; then another set of models takes the
 * place of the one in force, by one pointer. Requests in flight stay with the set that was in force
 * when they came. lm_server_reap closes a replaced set once no I/O thread can see it and its last
 * slot is back, and with it the models that no other set lists.
 */
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/processor.h"
#include "flow/estimate.h"
#include "flow/io_model.h"
#include "flow/reload.h"
#include "flow/request_lists.h"
#include "flow/shared.h"
#include "models/run_place.h"
#include "models/virtual.h"
#include "server/state.h"
#include "work/worker_open.h"

enum { ROOM_WAIT_MS = 2000 };

/* ---- a model that comes ---- */

/* Everything that the threads will need of it: nobody allocates or learns on a request's path. */
static int hold_for_threads(lumen_server *server, struct lm_model *model) {
    struct lm_shared *shared = &server->shared;
    char note[sizeof server->workers[0].note] = "";
    int code = 0;
    for (uint32_t i = 0; !code && i < shared->io_count; i++)
        code = lm_io_model_open(&shared->ios[i], model);
    for (uint32_t w = 0; !code && w < shared->worker_count; w++) {
        if (!lm_worker_is_there(&shared->workers[w])) continue;
        lm_run_arena_enter(&shared->run_arenas, LM_RUN_ARENA_LOADER);
        code = lm_worker_take_model(&shared->workers[w], model, note, sizeof note);
        (void)lm_run_arena_leave();
    }
    for (uint32_t i = 0; !code && i < shared->io_count; i++)
        lm_estimate_begin(&shared->ios[i], model);
    return code;
}

static void set_comes(lumen_server *server, bool comes) {
    pthread_mutex_lock(&server->control);
    server->comes = comes;
    pthread_mutex_unlock(&server->control);
}

/* Slots of models that went may not be back yet. */
static int find_room(lumen_server *server, struct lm_model *model) {
    for (bool again = false;; again = true) {
        set_comes(server, true);
        int code = lm_server_make_room(server, model);
        if (code != LUMEN_E_INVALID || again) return code;
        char reason[512];
        snprintf(reason, sizeof reason, "%s", lm_error_last());
        set_comes(server, false);
        if (lumen_settle(server, ROOM_WAIT_MS)) return lm_error(code, "%s", reason);
    }
}

static int prepare(struct lm_loading *loading) {
    lumen_server *server = loading->server;
    int code = lm_server_open_model(server, loading->config, loading->place.index, &loading->parts,
                                    &loading->model);
    if (code) return code;
    struct lm_model *model = loading->model;
    model->number = loading->place.number;
    code = find_room(server, model);
    if (!code) code = lm_server_settle_model(server, model);
    if (!code && model->process) code = lm_server_await_process(loading);
    if (!code) code = hold_for_threads(server, model);
    return code;
}

/* A thread of its own: an ordinary user's thread that has stepped down to SCHED_IDLE stays there,
 * and so do the threads it starts. */
static void *prepare_there(void *argument) {
    struct lm_loading *loading = argument;
    const struct sched_param none = {0};
    pthread_setname_np(pthread_self(), "lumen-load");
    /* ONNX Runtime's own threads run with the model: they are no loader's. */
    if (loading->gently && loading->config->intra_op_threads <= 1)
        (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    if (loading->server->shared.config.flush_denormals) (void)lm_processor_flush_denormals();
    loading->code = prepare(loading);
    if (loading->code) snprintf(loading->error, sizeof loading->error, "%s", lm_error_last());
    return NULL;
}

static int prepare_aside(struct lm_loading *loading) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int refused = pthread_create(&thread, NULL, prepare_there, loading);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (refused) return lm_error_errno(LUMEN_E_NOMEM, refused, "cannot start a thread");
    pthread_join(thread, NULL);
    return loading->code ? lm_error(loading->code, "%s", loading->error) : 0;
}

/* ---- what was replaced ---- */

void lm_server_reap(lumen_server *server) {
    struct lm_model_set *newer = server->set;
    bool any = false;
    if (server->grows) return;
    while (newer->retired) {
        struct lm_model_set *old = newer->retired;
        if (!lm_reload_models_are_left(&server->shared, old) || lm_server_starts_process(old)) {
            newer = old;
            continue;
        }
        newer->retired = old->retired;
        lm_server_close_set(server, old);
        any = true;
    }
    (void)lm_server_leave_room(server);
    (void)lm_server_seal(server);
    /* The heap keeps what large models leave; the loader's part of it, which no worker waits for.
     */
    if (any) (void)malloc_trim(0);
}

/* A virtual model that runs this one; NULL: there is none. */
static const struct lm_model *user_of(const struct lm_model_set *set,
                                      const struct lm_model *model) {
    for (uint32_t m = 0; m < set->count; m++) {
        for (uint32_t p = 0; p < lm_model_part_count(set->models[m]); p++) {
            if (lm_model_part(set->models[m], p) == model) return set->models[m];
        }
    }
    return NULL;
}

static bool runs(const lumen_model_config *config, uint32_t index) {
    bool any = false;
    for (uint32_t e = 0; config->experts && e < config->experts->count; e++)
        any = any || config->experts->experts[e].model == index;
    for (uint32_t s = 0; config->steps && s < config->steps->count; s++)
        any = any || config->steps->steps[s].model == index;
    return any;
}

static int check_unused(const lumen_server *server, const struct lm_model *model) {
    const struct lm_model *user = user_of(server->set, model);
    const struct lm_loading *loading = server->loading;
    const bool comes = loading && runs(loading->config, model->index);
    if (!user && !comes) return 0;
    const char *name = user ? user->name : loading->config->name;
    return lm_error(LUMEN_E_INVALID,
                    "model '%s' is run by '%s', a virtual model%s: unload '%s' first", model->name,
                    name, user ? "" : " that is being loaded", name);
}

/* ---- loading ---- */

static int begin(lumen_server *server, struct lm_loading *loading) {
    if (server->state != SERVER_RUNNING)
        return lm_error(LUMEN_E_STATE, "lumen_load_model comes after lumen_start");
    lm_reload_reap(&server->shared);
    lm_server_reap(server);
    const struct lm_model *served = lm_model_set_named(server->set, loading->config->name);
    int code = served ? check_unused(server, served) : 0;
    if (!code) code = lm_server_find_place(server, loading->config->name, &loading->place);
    if (code) return code;
    loading->parts = lm_server_parts(server);
    server->loading = loading;
    return 0;
}

/* The last requests of a model that went may not be answered yet. */
static int begin_locked(lumen_server *server, struct lm_loading *loading) {
    for (bool again = false;; again = true) {
        pthread_mutex_lock(&server->control);
        int code = begin(server, loading);
        pthread_mutex_unlock(&server->control);
        if (code != LUMEN_E_AGAIN || again) return code;
        (void)lumen_settle(server, ROOM_WAIT_MS);
    }
}

/* Everything that can fail, then what shows it. */
static int put_in_force(lumen_server *server, struct lm_loading *loading) {
    struct lm_shared *shared = &server->shared;
    struct lm_model *model = loading->model;
    const struct lm_model *before = lm_model_set_find(server->set, model->index);
    struct lm_access *access_before = lm_reload_in_force(shared), *access = NULL;
    struct lm_model_set *next = NULL;
    bool is_like = before && lm_model_is_like(model, before);
    uint32_t *signature = &server->signatures[model->index];
    if (server->state != SERVER_RUNNING) return lm_error(LUMEN_E_STATE, "the server has ended");
    if (loading->is_called_off) return lm_server_called_off(loading);
    model->signature = is_like ? before->signature : *signature + 1;
    int code = lm_access_copy(&access, access_before);
    if (!code)
        code = lm_access_set_model(access, model->index, loading->config,
                                   loading->place.is_anothers ? NULL : access_before, lm_now_ns());
    if (!code) code = lm_server_make_set(server, model->index, model, &next);
    if (!code && (code = lm_server_take_place(server, &loading->place, model, access))) {
        model->sets++; /* the caller closes it */
        lm_server_close_set(server, next);
        model->sets--;
    }
    if (code) {
        lm_access_close(access);
        return code;
    }
    *signature = model->signature;
    model->loaded_ms = lm_unix_ms();
    lm_budgets_name_model(&shared->budgets, model->index, model->name);
    lm_server_name_experts(server, model);
    lm_reload_publish(shared, access); /* its rate, before its first request */
    lm_server_publish_set(server, next);
    return 0;
}

static int load(lumen_server *server, struct lm_loading *loading) {
    int code = begin_locked(server, loading);
    if (!code) code = prepare_aside(loading);
    if (!code) code = lm_server_await_lines(server, &loading->place);
    pthread_mutex_lock(&server->control);
    if (!code) code = put_in_force(server, loading);
    if (!code) loading->process = NULL; /* a set lists its model */
    pthread_mutex_unlock(&server->control);
    if (code) {
        snprintf(loading->error, sizeof loading->error, "%s", lm_error_last());
        lm_server_leave_process(loading);
        if (loading->model) lm_server_close_model(server, loading->model);
        code = lm_error(code, "%s", loading->error);
    }
    pthread_mutex_lock(&server->control);
    server->loading = NULL;
    server->comes = false;
    pthread_mutex_unlock(&server->control);
    return code;
}

int lumen_load_model(lumen_server *server, const lumen_model_config *config, uint32_t flags,
                     uint32_t *index_out) {
    struct lm_loading loading = {
        .server = server, .config = config, .gently = flags & LUMEN_LOAD_GENTLY};
    if (flags & ~(uint32_t)LUMEN_LOAD_GENTLY)
        return lm_error(LUMEN_E_INVALID, "lumen_load_model: unknown flags 0x%x", flags);
    pthread_mutex_lock(&server->changing);
    int code = load(server, &loading);
    pthread_mutex_unlock(&server->changing);
    *index_out = loading.place.index;
    return code;
}

/* ---- unloading ---- */

static int unload(lumen_server *server, const char *name) {
    struct lm_loading *loading = server->loading;
    struct lm_model_set *next = NULL;
    const bool comes = loading && strcmp(loading->config->name, name) == 0;
    if (server->state != SERVER_RUNNING) return lm_error(LUMEN_E_STATE, "the server does not run");
    const struct lm_model *model = lm_model_set_named(server->set, name);
    if (!model && !comes) return lm_error(LUMEN_E_INVALID, "no model '%s' is served", name);
    int code = model ? check_unused(server, model) : 0;
    if (!code && model) code = lm_server_make_set(server, model->index, NULL, &next);
    if (code) return code;
    if (comes) loading->is_called_off = true;
    if (!model) return 0;
    lm_server_publish_set(server, next);
    lm_server_leave_place(server, model->index);
    return 0;
}

int lumen_unload_model(lumen_server *server, const char *name) {
    pthread_mutex_lock(&server->control);
    int code = unload(server, name);
    pthread_mutex_unlock(&server->control);
    return code;
}

/* ---- models that I/O threads run no more ---- */

static bool tell_long_runs(lumen_server *server, char *text, size_t text_bytes) {
    size_t used = 0;
    for (uint32_t m = 0; m < server->set->count; m++) {
        struct lm_model *model = server->set->models[m];
        uint32_t took_us = lm_model_long_run_us(model);
        if (!took_us || model->long_run_told || used >= text_bytes) continue;
        int bytes = snprintf(
            text + used, text_bytes - used,
            "%sModel %s: a Run took an I/O thread %.1f ms. The workers run it from now on.",
            used ? "\n" : "", model->name, took_us / 1000.0);
        used += bytes > 0 ? (size_t)bytes : 0;
        model->long_run_told = true;
    }
    if (used) lm_server_describe_anew(server);
    return used > 0;
}

bool lm_server_tell_long_runs(lumen_server *server, char *text, size_t text_bytes) {
    if (pthread_mutex_trylock(&server->changing) != 0) return false; /* another time */
    pthread_mutex_lock(&server->control);
    bool told = server->state == SERVER_RUNNING && tell_long_runs(server, text, text_bytes);
    pthread_mutex_unlock(&server->control);
    pthread_mutex_unlock(&server->changing);
    return told;
}

/* ---- waiting ---- */

int lumen_settle(lumen_server *server, uint32_t timeout_ms) {
    const uint64_t until_ns = lm_now_ns() + timeout_ms * 1000000ull;
    for (;;) {
        pthread_mutex_lock(&server->control);
        bool runs = server->state == SERVER_RUNNING;
        if (runs) {
            lm_reload_reap(&server->shared);
            lm_server_reap(server);
        }
        bool settled = server->set->retired == NULL && (!runs || lm_server_leave_room(server));
        pthread_mutex_unlock(&server->control);
        if (settled) return 0;
        if (!runs) return lm_error(LUMEN_E_STATE, "the server does not run");
        if (lm_now_ns() >= until_ns)
            return lm_error(LUMEN_E_AGAIN, "requests still use models that were replaced");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}
