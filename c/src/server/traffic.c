/* traffic.c: which versions of models answer requests that name none, and which run copies of
 * requests. Control thread. */
#include "parts/traffic.h"
#include "flow/reload.h"
#include "server/state.h"

int lm_server_follow_traffic(lumen_server *server, const struct lm_traffic *traffic) {
    bool any = false;
    for (uint32_t r = 0; r < traffic->count; r++) any = any || traffic->rules[r].shadow;
    return any ? lm_server_start_shadow(server) : 0;
}

int lumen_set_traffic(lumen_server *server, const lumen_traffic *traffic, uint32_t count) {
    struct lm_shared *shared = &server->shared;
    struct lm_access *access = NULL;
    pthread_mutex_lock(&server->control);
    const bool runs = server->state == SERVER_RUNNING;
    int code = runs ? lm_access_copy(&access, lm_reload_in_force(shared)) : 0;
    struct lm_access *to = runs ? access : lm_reload_in_force(shared);
    if (!code) code = lm_traffic_set(&to->traffic, traffic, count);
    if (!code && runs) code = lm_server_follow_traffic(server, &to->traffic);
    if (!code && runs)
        lm_reload_publish(shared, access);
    else
        lm_access_close(access);
    pthread_mutex_unlock(&server->control);
    return code;
}
