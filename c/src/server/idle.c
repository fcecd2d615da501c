/* idle.c: which model nobody has asked for longest: where models are loaded on demand, it goes
 * first. Any thread of the process that holds the server. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "models/virtual.h"
#include "server/state.h"

static bool is_spared(const struct lm_model *model, const char *const *spared, uint32_t count) {
    for (uint32_t s = 0; s < count; s++)
        if (strcmp(model->name, spared[s]) == 0) return true;
    return lm_model_is_virtual(model) || lm_model_is_elsewhere(model);
}

/* Of each index, whether a virtual model runs it. */
static void find_parts(const struct lm_model_set *set, bool *is_part) {
    for (uint32_t m = 0; m < set->count; m++) {
        for (uint32_t p = 0; p < lm_model_part_count(set->models[m]); p++)
            is_part[lm_model_part(set->models[m], p)->index] = true;
    }
}

static uint64_t later(uint64_t last, const lm_atomic_u64 *gauge) {
    const uint64_t now = lm_load_relaxed_u64(gauge); /* relaxed: a gauge */
    return now > last ? now : last;
}

/* Of an answer, also from the response cache; unix time in ms. */
static uint64_t last_ms(const lumen_server *server, const struct lm_model *model) {
    uint64_t last = model->loaded_ms;
    for (uint32_t i = 0; i < server->shared.io_count; i++)
        last = later(last, &server->ios[i].stats->models[model->index].io.model_last_ms);
    for (uint32_t w = 0; w < server->shared.bulk.answerers; w++) {
        if (!lm_worker_is_there(&server->workers[w])) continue;
        last = later(last, &server->workers[w].stats->models[model->index].worker.model_last_ms);
    }
    return last;
}

static const struct lm_model *longest_idle(const lumen_server *server, const char *const *spared,
                                           uint32_t count) {
    const struct lm_model *found = NULL;
    bool is_part[LUMEN_MODELS_MAX] = {false};
    uint64_t least = UINT64_MAX;
    find_parts(server->set, is_part);
    for (uint32_t m = 0; m < server->set->count; m++) {
        const struct lm_model *model = server->set->models[m];
        if (is_part[model->index] || is_spared(model, spared, count)) continue;
        const uint64_t last = last_ms(server, model);
        if (last >= least) continue;
        found = model;
        least = last;
    }
    return found;
}

int lumen_longest_idle(lumen_server *server, const char *const *spared, uint32_t count,
                       char *name_out, size_t capacity) {
    int code = lm_error(LUMEN_E_INVALID, "no model may go");
    pthread_mutex_lock(&server->control);
    const bool runs = server->state == SERVER_RUNNING;
    const struct lm_model *found = runs ? longest_idle(server, spared, count) : NULL;
    if (found && strlen(found->name) < capacity) {
        memcpy(name_out, found->name, strlen(found->name) + 1);
        code = 0;
    }
    pthread_mutex_unlock(&server->control);
    return code;
}
