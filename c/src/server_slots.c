/* server_slots.c: what bounds the slots of an I/O thread; and slots for a model that comes while
 * the server runs: where its largest requests fit none that are there, each I/O thread gets an
 * annex (parts/annex.h), within arena_bytes.
 */
#include "base/error.h"
#include "flow/reload.h"
#include "server.h"

struct lm_slot_plan_limits lm_server_slot_limits(const lumen_server *server) {
    const struct lm_shared *shared = &server->shared;
    const lumen_config *config = &shared->config;
    return (struct lm_slot_plan_limits){.arena_bytes = config->arena_bytes / shared->io_count,
                                        .max_request_bytes = config->max_request_bytes,
                                        .slot_count_max = config->queue_capacity / shared->io_count,
                                        .worker_count = lm_shared_parallel(shared)};
}

/* Of one arena. */
static uint64_t bytes_left(const lumen_server *server, const struct lm_annexes *annexes) {
    const lumen_info *info = &server->info;
    uint64_t used = lm_annexes_bytes(annexes);
    for (uint32_t c = 0; c < info->slot_class_count; c++)
        used += info->slot_classes[c].slot_bytes * info->slot_classes[c].slot_count;
    uint64_t all = lm_server_slot_limits(server).arena_bytes;
    return all > used ? all - used : 0;
}

/* One for each worker, so that none waits, and more where so many bytes are left beside them.
 * Returns 0 or LUMEN_E_*. */
static int open_annex(lumen_server *server, struct lm_io *io, const struct lm_model *model,
                      size_t slot_bytes, uint64_t beside) {
    uint32_t least = lm_node_parallel(io->node), most = io->arena.annex_slots;
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
