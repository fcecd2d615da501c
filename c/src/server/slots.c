/* slots.c: what bounds the slots of an I/O thread; and slots for a model that comes while
 * the server runs: where its largest requests fit none that are there, each I/O thread gets an
 * annex (parts/annex.h), within arena_bytes.
 */
#include <stdio.h>

#include "base/error.h"
#include "flow/reload.h"
#include "server/state.h"

/* By the workers of the start: slots do not become more with them. */
struct lm_slot_plan_limits lm_server_slot_limits(const lumen_server *server) {
    const struct lm_shared *shared = &server->shared;
    const lumen_config *config = &shared->config;
    return (struct lm_slot_plan_limits){.arena_bytes = config->arena_bytes / shared->io_count,
                                        .max_request_bytes = config->max_request_bytes,
                                        .slot_count_max = config->queue_capacity / shared->io_count,
                                        .worker_count = server->placement.worker_count
                                                            ? server->placement.worker_count
                                                            : shared->worker_count};
}

/* The most memory for slots where nobody set a bound. */
static uint64_t auto_arena_max(const lumen_server *server) {
    uint64_t most = lm_memory_usable() / LM_AUTO_MEMORY_SHARE;
    /* Memory in common with processes of models is reserved before the models are known. */
    if (server->shared.common && most > 4ull * LM_AUTO_ARENA_BYTES)
        most = 4ull * LM_AUTO_ARENA_BYTES;
    return most > LM_AUTO_ARENA_BYTES ? most : LM_AUTO_ARENA_BYTES;
}

void lm_server_fit_limits(lumen_server *server) {
    lumen_config *config = &server->shared.config;
    struct lm_model *const *models = server->set->models;
    const uint64_t most = auto_arena_max(server);
    char line[192];
    /* An arena that somebody has bounded holds no larger requests than before. */
    bool raises = server->auto_request && server->auto_arena;
    for (uint32_t m = 0; raises && m < server->set->count; m++) {
        uint64_t bytes = lm_slot_plan_row_bytes(models[m]);
        if (bytes <= config->max_request_bytes || bytes > most || bytes > 2u << 30) continue;
        config->max_request_bytes = (uint32_t)bytes;
    }
    if (server->auto_arena) {
        const struct lm_slot_plan_limits limits = lm_server_slot_limits(server);
        uint64_t bytes = lm_slot_plan_arena_bytes(models, server->set->count, &limits);
        if (bytes > most / server->shared.io_count) bytes = most / server->shared.io_count;
        bytes *= server->shared.io_count;
        if (bytes > config->arena_bytes) config->arena_bytes = bytes;
    }
    if (config->max_request_bytes == LM_AUTO_REQUEST_BYTES &&
        config->arena_bytes == LM_AUTO_ARENA_BYTES)
        return;
    if (!server->auto_request && !server->auto_arena) return;
    snprintf(line, sizeof line,
             "the models' rows are large: server.max_request_bytes is %u, server.arena_bytes %llu",
             config->max_request_bytes, (unsigned long long)config->arena_bytes);
    lm_server_note(server, line);
}

/* Of one arena. */
static uint64_t bytes_left(const lumen_server *server, const struct lm_annexes *annexes) {
    const lumen_info *info = &server->info;
    uint64_t used = lm_annexes_bytes(annexes);
    for (uint32_t c = 0; c < info->slot_class_count; c++)
        used += info->slot_classes[c].slot_bytes * info->slot_classes[c].slot_count;
    uint64_t all = lm_server_slot_limits(server).arena_bytes;
    /* Of large slots the pages come when they are first used. */
    if (server->auto_arena) all = auto_arena_max(server) / server->shared.io_count;
    return all > used ? all - used : 0;
}

/* One for each worker, so that none waits, and more where so many bytes are left beside them.
 * Returns 0 or LUMEN_E_*. */
static int open_annex(lumen_server *server, struct lm_io *io, const struct lm_model *model,
                      size_t slot_bytes, uint64_t beside) {
    uint32_t least = lm_node_parallel(io->node), most = io->arena.annex_slots;
    if (least > most) least = most; /* there were fewer workers at the start */
    uint64_t left = bytes_left(server, &io->annexes);
    uint64_t fitting = left > beside ? (left - beside) / slot_bytes : 0;
    if (fitting < least) fitting = least;
    const lumen_slot_class class = {.slot_bytes = slot_bytes,
                                    .slot_count = fitting < most ? (uint32_t)fitting : most};
    if (left / slot_bytes < least) {
        return lm_error(LUMEN_E_INVALID,
                        "model '%s': a row needs a slot of %zu bytes, of which each I/O thread has "
                        "%u, one for each worker; of server.arena_bytes each has %llu left: raise "
                        "that, or lower the model's max_dims or max_output_bytes",
                        model->name, slot_bytes, least, (unsigned long long)left);
    }
    if (io->node->memory >= 0) lm_memory_prefer(io->node->memory);
    int code = lm_annex_open(&io->annexes, &class, server->shared.config.huge_pages);
    if (io->node->memory >= 0) lm_memory_prefer(-1);
    return code;
}

/* The slots of one I/O thread. It can do without JSON, whose numbers take more room. */
static int make_room(lumen_server *server, struct lm_io *io, struct lm_model *model) {
    size_t row = model->late_row_bytes, text = model->late_text_bytes;
    bool is_one = text > row && text <= row + row / 4; /* size for both */
    uint64_t for_text = is_one ? 0 : text * (uint64_t)lm_node_parallel(io->node);
    int code = 0;
    if (is_one) row = text;
    if (lm_annexes_largest(&io->annexes, SIZE_MAX) < row)
        code = open_annex(server, io, model, row, for_text);
    if (!code && lm_annexes_largest(&io->annexes, SIZE_MAX) < text &&
        open_annex(server, io, model, text, UINT64_MAX))
        model->late_text_bytes = 0;
    return code;
}

int lm_server_make_room(lumen_server *server, struct lm_model *model) {
    const struct lm_shared *shared = &server->shared;
    const struct lm_slot_plan_limits limits = lm_server_slot_limits(server);
    size_t largest = SIZE_MAX;
    int code = lm_slot_plan_late(model, &limits);
    for (uint32_t i = 0; !code && i < shared->io_count; i++) {
        code = make_room(server, &server->ios[i], model);
        size_t found = lm_annexes_largest(&server->ios[i].annexes, SIZE_MAX);
        if (found < largest) largest = found;
    }
    if (!code) lm_slot_plan_bound(model, &limits, largest);
    return code;
}

/* Whether a model that is served, or still has requests, needs slots of more than `below` bytes and
 * at most `bytes`. */
static bool is_needed(const lumen_server *server, size_t below, size_t bytes) {
    for (const struct lm_model_set *set = server->set; set; set = set->retired) {
        for (uint32_t m = 0; m < set->count; m++) {
            const struct lm_model *model = set->models[m];
            size_t row = model->late_row_bytes, text = model->late_text_bytes;
            if ((row > below && row <= bytes) || (text > below && text <= bytes)) return true;
        }
    }
    return false;
}

bool lm_server_leave_room(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    bool all = true;
    for (uint32_t i = 0; i < shared->io_count; i++) {
        struct lm_annexes *annexes = &server->ios[i].annexes;
        for (uint32_t a = 0; !server->comes && a < LM_ANNEXES_MAX; a++) {
            struct lm_annex *annex = &annexes->all[a];
            size_t bytes = annex->slot_bytes;
            if (lm_annex_is_open(annex) &&
                !is_needed(server, lm_annexes_largest(annexes, bytes), bytes))
                lm_annex_leave(annex);
        }
        all = lm_annexes_reap(annexes) && all;
    }
    if (!all) (void)lm_reload_ask(shared);
    return all;
}
