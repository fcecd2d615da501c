/* budgets.c: how much keys and models may have in a minute and in a day. Control thread. */
#include "parts/budgets.h"
#include "base/clock.h"
#include "base/error.h"
#include "flow/reload.h"
#include "server/state.h"

static int open_once(lumen_server *server) {
    struct lm_budgets *budgets = &server->shared.budgets;
    char note[192];
    if (budgets->memory.base) return 0;
    int code = lm_budgets_open(budgets, server->shared.config.port, note, sizeof note);
    if (!code && note[0]) lm_server_note(server, note);
    if (!code) memcpy(server->info.budgets_path, budgets->path, sizeof server->info.budgets_path);
    return code;
}

int lumen_set_budgets(lumen_server *server, const lumen_budget_config *budgets, uint32_t count) {
    struct lm_shared *shared = &server->shared;
    pthread_mutex_lock(&server->control);
    int code = count ? open_once(server) : 0;
    if (!code) code = lm_budgets_set(&shared->budgets, budgets, count, lm_unix_s());
    for (uint32_t m = 0; !code && m < server->set->count; m++)
        lm_budgets_name_model(&shared->budgets, server->set->models[m]->index,
                              server->set->models[m]->name);
    if (!code) lm_access_find_budgets(lm_reload_in_force(shared), &shared->budgets);
    pthread_mutex_unlock(&server->control);
    return code;
}
