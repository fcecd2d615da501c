/* reload.c: what changes while a server runs. Control thread only. */
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "flow/reload.h"
#include "parts/settings.h"
#include "server/state.h"
#include "tls/door.h"

enum { TURN_MS = 1000 }; /* for an I/O thread to look; with `inline` it may be inside a Run */

static int check_models(const lumen_server *server, const lumen_model_config *models,
                        uint32_t count, uint32_t *indexes) {
    if (count > server->set->count) {
        return lm_error(LUMEN_E_INVALID,
                        "lumen_reload: expected at most the %u models that are served, found %u",
                        server->set->count, count);
    }
    for (uint32_t m = 0; m < count; m++) {
        const struct lm_model *model = lm_model_set_named(server->set, models[m].name);
        if (!model)
            return lm_error(LUMEN_E_INVALID,
                            "lumen_reload: expected models that are served, found '%s'",
                            models[m].name);
        indexes[m] = model->index;
    }
    return 0;
}

static int make_access(const lumen_server *server, const lumen_config *config,
                       const lumen_model_config *models, uint32_t model_count,
                       struct lm_access **access_out) {
    struct lm_access *before = lm_reload_in_force(&server->shared);
    uint32_t indexes[LUMEN_MODELS_MAX];
    int code = check_models(server, models, model_count, indexes);
    if (!code) code = lm_access_open(access_out, config, before, lm_now_ns());
    if (code) return code;
    lm_access_find_budgets(*access_out, &server->shared.budgets);
    for (uint32_t m = 0; m < server->set->count; m++) {
        const struct lm_model *model = server->set->models[m];
        lm_keys_name_model(&(*access_out)->keys, model->index, model->name, model->base);
    }
    for (uint32_t m = 0; !code && m < model_count; m++)
        code = lm_access_set_model(*access_out, indexes[m], &models[m], before, lm_now_ns());
    if (code) lm_access_close(*access_out);
    return code;
}

int lumen_reload(lumen_server *server, const lumen_config *config, const lumen_model_config *models,
                 uint32_t model_count) {
    struct lm_shared *shared = &server->shared;
    struct lm_access *access;
    if (server->state != SERVER_RUNNING) return lm_error(LUMEN_E_STATE, "the server does not run");
    int code = lm_settings_check(config);
    if (code) return code;
    pthread_mutex_lock(&server->control);
    code = make_access(server, config, models, model_count, &access);
    if (!code) lm_reload_publish(shared, access);
    uint64_t until_ns = lm_now_ns() + TURN_MS * 1000000ull;
    while (!code && (lm_reload_reap(shared), access->retired && lm_now_ns() < until_ns))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pthread_mutex_unlock(&server->control);
    return code;
}

int lumen_reopen(lumen_server *server, uint32_t access_as_json) {
    if (server->state != SERVER_RUNNING) return lm_error(LUMEN_E_STATE, "the server does not run");
    /* relaxed: a word of its own */
    lm_store_relaxed_u32(&server->telemetry.access_as_json, access_as_json);
    /* O2: acq_rel: shows the form of the lines; pairs with O1 in work/telemetry.c */
    (void)lm_exchange_acq_rel_u32(&server->telemetry.reopen, 1);
    return 0;
}

int lumen_news(lumen_server *server, char *buffer, size_t capacity) {
    if (capacity == 0 || lm_telemetry_news(&server->telemetry, buffer, capacity)) return 0;
    if (lm_server_tell_long_runs(server, buffer, capacity)) return 0;
    if (server->shared.tls && lm_tls_door_news(server->shared.tls, buffer, capacity)) return 0;
    buffer[0] = '\0';
    return 0;
}

int lumen_heartbeat(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    if (server->state != SERVER_RUNNING) return lm_error(LUMEN_E_STATE, "the server does not run");
    pthread_mutex_lock(&server->control);
    lm_reload_reap(shared);
    lm_server_reap(server);
    bool turned = lm_reload_all_turned(shared, server->beat);
    if (turned) server->beat = lm_reload_ask(shared);
    pthread_mutex_unlock(&server->control);
    return turned ? 0 : lm_error(LUMEN_E_AGAIN, "an I/O thread has not turned since");
}
