/* names.c: the places of the models' names. A name has an index: its row of the statistics,
 * its bit of a key's rights, its rate; and a number, by which native clients call it. Both stay
 * while the name is served, and as long as nobody else needs its place.
 *
 * There are names_max places. A name that was not there takes one that was never used, as
 * long as few names went, or else the one whose name went longest ago, once the last request of
 * that is answered: so a server that loads ever new names keeps the figures of the last that went,
 * and needs no more memory. The figures of another name begin
 * at 0, no key's right and no rate goes over, and the number is another one, so that a client with
 * an old number is refused and never reaches the wrong model. A number comes back only after more
 * than 65,000 other names. The caller holds `control`. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "server/state.h"
#include "work/worker_open.h"

enum {
    NUMBER_MOST = UINT16_MAX - 2, /* a reply has 1 + the number, and LM_NO_MODEL is none */
    NAMES_KEPT = 64,              /* of those that went */
    LINES_WAIT_MS = 2000
};

/* Whether no request can name the place any more. */
static bool is_left(const lumen_server *server, uint32_t index) {
    for (const struct lm_model_set *set = server->set; set; set = set->retired) {
        if (lm_model_set_find(set, index)) return false;
    }
    return true;
}

static bool is_number_taken(const lumen_server *server, uint16_t number) {
    for (uint32_t m = 0; m < LUMEN_MODELS_MAX; m++) {
        if (server->numbers[m] == number) return true;
    }
    return false;
}

static uint16_t next_number(lumen_server *server) {
    uint16_t number = server->last_number;
    do {
        number = number < LUMEN_MODELS_MAX || number == NUMBER_MOST ? LUMEN_MODELS_MAX
                                                                    : (uint16_t)(number + 1);
    } while (is_number_taken(server, number));
    server->last_number = number;
    return number;
}

/* The place whose name went longest ago, of which no request is left; LUMEN_MODELS_MAX: there is
 * none. */
static uint32_t longest_left(const lumen_server *server, uint32_t used) {
    uint32_t found = LUMEN_MODELS_MAX;
    for (uint32_t m = 0; m < used; m++) {
        const bool is_older = found == LUMEN_MODELS_MAX || server->left[m] < server->left[found];
        if (is_older && is_left(server, m)) found = m;
    }
    return found;
}

int lm_server_find_place(lumen_server *server, const char *name, struct lm_name_place *place_out) {
    const struct lm_stats *stats = &server->shared.stats;
    const uint32_t known = lm_stats_find_model(stats, name), used = stats->header->model_count;
    const uint32_t served = server->set->count;
    *place_out = (struct lm_name_place){.index = known};
    if (known < LUMEN_MODELS_MAX) {
        place_out->number = server->numbers[known];
        return 0;
    }
    const bool many_went = used - served >= NAMES_KEPT || used == server->names_max;
    const uint32_t left = many_went ? longest_left(server, used) : LUMEN_MODELS_MAX;
    if (left == LUMEN_MODELS_MAX && used < server->names_max) {
        place_out->index = used;
        place_out->number = (uint16_t)used;
        return 0;
    }
    if (left == LUMEN_MODELS_MAX)
        return lm_error(served == used ? LUMEN_E_INVALID : LUMEN_E_AGAIN,
                        "models: expected at most %u names at a time, found '%s' as one more: "
                        "unload one first%s",
                        server->names_max, name,
                        served == used ? "" : " (requests of one that went are not answered yet)");
    place_out->index = left;
    place_out->number = next_number(server);
    place_out->is_anothers = true;
    place_out->rounds = lm_telemetry_rounds(&server->telemetry);
    return 0;
}

int lm_server_await_lines(lumen_server *server, const struct lm_name_place *place) {
    const uint64_t until_ns = lm_now_ns() + LINES_WAIT_MS * 1000000ull;
    /* The round that was under way may have missed the last ones. */
    while (place->is_anothers && lm_telemetry_rounds(&server->telemetry) < place->rounds + 2) {
        if (!lm_telemetry_runs(&server->telemetry)) return 0;
        if (lm_now_ns() >= until_ns)
            return lm_error(LUMEN_E_AGAIN,
                            "the telemetry and the access log are behind: lines of the model that "
                            "had its place are not written yet");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return 0;
}

int lm_server_take_place(lumen_server *server, const struct lm_name_place *place,
                         const struct lm_model *model, struct lm_access *access) {
    struct lm_shared *shared = &server->shared;
    if (place->is_anothers) {
        LM_ASSERT(is_left(server, place->index));
        for (uint32_t w = 0; w < shared->bulk.answerers; w++)
            lm_worker_forget_model(&shared->workers[w], place->index);
        lm_stats_rename_model(&shared->stats, place->index, model->name);
    } else if (place->index == shared->stats.header->model_count) {
        int code = lm_stats_add_model(&shared->stats, model->name);
        if (code) return code;
    }
    lm_keys_name_model(&access->keys, place->index, model->name, model->base);
    server->numbers[place->index] = place->number;
    return 0;
}

void lm_server_leave_place(lumen_server *server, uint32_t index) {
    server->left[index] = ++server->leaving;
}

void lm_server_name_experts(lumen_server *server, struct lm_model *model) {
    struct lm_experts *experts = &model->experts;
    uint32_t indexes[LUMEN_EXPERTS_MAX];
    for (uint32_t e = 0; e < experts->count; e++) indexes[e] = experts->models[e]->index;
    lm_stats_name_experts(&server->shared.stats, model->index, indexes, experts->count,
                          experts->places);
}
