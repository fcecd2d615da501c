/* names.c: the places of the models' names. A name has an index: its row of the statistics,
 * its bit of a key's rights, its rate; and a number, by which native clients call it. Both stay
 * while the name is served, and as long as nobody else needs its place.
 *
 * There are LUMEN_MODELS_MAX places. A name that was not there takes one that was never used, or
 * the one whose name went longest ago, once the last request of that is answered: the figures begin
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
    LINES_WAIT_MS = 2000
};

/* Whether no request can name the place any more. */
static bool is_left(const lumen_server *server, uint32_t index) {
    for (const struct lm_model_set *set = server->set; set; set = set->retired) {
        if (set->at[index]) return false;
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

int lm_server_find_place(lumen_server *server, const char *name, struct lm_name_place *place_out) {
    const struct lm_stats *stats = &server->shared.stats;
    const uint32_t known = lm_stats_find_model(stats, name), used = stats->header->model_count;
    *place_out = (struct lm_name_place){.index = known};
    if (known == LUMEN_MODELS_MAX) place_out->index = used;
    if (place_out->index < LUMEN_MODELS_MAX) {
        place_out->number = known < LUMEN_MODELS_MAX ? server->numbers[known] : (uint16_t)used;
        return 0;
    }
    bool any_served = true;
    for (uint32_t m = 0; m < LUMEN_MODELS_MAX; m++) {
        any_served = any_served && server->set->at[m];
        if (is_left(server, m) && (place_out->index == LUMEN_MODELS_MAX ||
                                   server->left[m] < server->left[place_out->index]))
            place_out->index = m;
    }
    if (place_out->index == LUMEN_MODELS_MAX)
        return lm_error(any_served ? LUMEN_E_INVALID : LUMEN_E_AGAIN,
                        "models: expected at most %d names at a time, found '%s' as one more: "
                        "unload one first%s",
                        LUMEN_MODELS_MAX, name,
                        any_served ? "" : " (requests of one that went are not answered yet)");
    place_out->number = next_number(server);
    place_out->is_anothers = true;
    place_out->rounds = lm_telemetry_rounds(&server->telemetry);
    return 0;
}

int lm_server_await_lines(lumen_server *server, const struct lm_name_place *place) {
    const uint64_t until_ns = lm_now_ns() + LINES_WAIT_MS * 1000000ull;
    /* The round that was under way may have missed the last ones. */
    while (place->is_anothers && lm_telemetry_rounds(&server->telemetry) < place->rounds + 2) {
        if (!server->telemetry.thread_started) return 0;
        if (lm_now_ns() >= until_ns)
            return lm_error(LUMEN_E_AGAIN,
                            "the telemetry and the access log are behind: lines of the model that "
                            "had its place are not written yet");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return 0;
}

int lm_server_take_place(lumen_server *server, const struct lm_name_place *place, const char *name,
                         struct lm_access *access) {
    struct lm_shared *shared = &server->shared;
    if (place->is_anothers) {
        LM_ASSERT(is_left(server, place->index));
        lm_keys_forget_model(&access->keys, place->index);
        for (uint32_t w = 0; w < shared->bulk.answerers; w++)
            lm_worker_forget_model(&shared->workers[w], place->index);
        lm_stats_rename_model(&shared->stats, place->index, name);
    } else if (place->index == shared->stats.header->model_count) {
        int code = lm_stats_add_model(&shared->stats, name);
        if (code) return code;
    }
    server->numbers[place->index] = place->number;
    return 0;
}

void lm_server_leave_place(lumen_server *server, uint32_t index) {
    server->left[index] = ++server->leaving;
}
