/* models.c: the models of a server, opened one by one. Control thread only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dialects/http_documents.h"
#include "flow/reload.h"
#include "flow/request_lists.h"
#include "flow/shared.h"
#include "formats/describe.h"
#include "formats/text_slots.h"
#include "image/rows.h"
#include "models/load.h"
#include "models/virtual.h"
#include "parts/settings.h"
#include "server/state.h"
#include "work/worker_open.h"

/* ---- one model ---- */

/* Rows of different requests can share a Run when every tensor is so many rows of the same size; of
 * an output the Run may say the size. */
static bool can_batch(const struct lm_model *model) {
    bool free = true;
    for (uint32_t i = 0; i < model->input_count; i++) free = free && model->inputs[i].rows_free;
    for (uint32_t o = 0; o < model->output_count; o++)
        free = free && (model->outputs[o].rows_free || model->outputs[o].rows_first);
    return free;
}

static int set_batch(lumen_server *server, struct lm_model *model,
                     const lumen_model_config *config) {
    const lumen_config *defaults = &server->shared.config;
    uint32_t size = config->batch_size                 ? config->batch_size
                    : lm_runner_of(model)->not_batched ? 1
                                                       : defaults->batch_size;
    uint32_t delay_us =
        config->batch_delay_us != UINT32_MAX ? config->batch_delay_us : defaults->batch_delay_us;
    if (size > LM_BATCH_MAX) return lm_setting_in_range("batch_size", size, 1, LM_BATCH_MAX);
    if (size > 1 && !can_batch(model)) {
        return lm_error(LUMEN_E_MODEL,
                        "model '%s': expected batch_size 1, found %u: its first "
                        "dimension is not free in every input and output (set batch_size: 1 in its "
                        "entry)",
                        model->name, size);
    }
    model->batch_size = size;
    model->batch_delay_ns = delay_us * 1000ull;
    for (uint32_t p = 0; p < config->preferred_count; p++) {
        const uint32_t rows = config->preferred[p];
        if (rows < 1 || rows > LM_BATCH_MAX)
            return lm_setting_in_range("batch_preferred", rows, 1, LM_BATCH_MAX);
        model->preferred[(rows - 1) / 64] |= 1ull << (rows - 1) % 64;
    }
    model->max_queued = config->max_queued;
    if (__builtin_mul_overflow(config->queue_timeout_us, 1000, &model->queue_timeout_ns))
        model->queue_timeout_ns = 0; /* centuries */
    return 0;
}

static void *zeroed(size_t bytes) {
    void *memory = aligned_alloc(LM_CACHE_LINE, lm_align_up(bytes, LM_CACHE_LINE));
    if (memory) memset(memory, 0, bytes);
    return memory;
}

void lm_server_close_model(lumen_server *server, struct lm_model *model) {
    lm_shared_leave_model(&server->shared, model);
    lm_model_close(model, &server->shared.ort);
    free(model);
}

struct lm_parts lm_server_parts(const lumen_server *server) {
    const struct lm_model_set *set = server->set;
    struct lm_parts parts = {.known = set->count ? set->models[set->count - 1]->index + 1 : 0};
    for (uint32_t m = 0; m < set->count; m++) parts.at[set->models[m]->index] = set->models[m];
    return parts;
}

static int open_elsewhere(const lumen_server *server, struct lm_model *model,
                          const lumen_model_config *config, uint32_t index) {
    const uint32_t count = server->shared.upstreams.count;
    if (config->upstream > count)
        return lm_error(LUMEN_E_INVALID, "model '%s': upstream: expected at most %u, found %u",
                        config->name, count, config->upstream);
    if (!config->upstream_model || !config->upstream_model[0] ||
        strlen(config->upstream_model) >= LM_NAME_BYTES_MAX)
        return lm_error(LUMEN_E_INVALID,
                        "model '%s': its name at the upstream: expected 1 to %d bytes",
                        config->name, LM_NAME_BYTES_MAX - 1);
    return lm_model_open_elsewhere(model, config, index);
}

int lm_server_open_model(lumen_server *server, const lumen_model_config *config, uint32_t index,
                         struct lm_parts *parts, struct lm_model **model_out) {
    struct lm_shared *shared = &server->shared;
    struct lm_model *model = zeroed(sizeof *model);
    uint32_t sessions = server->thread_total ? server->thread_total : 1;
    *model_out = NULL;
    if (!model) return lm_error(LUMEN_E_NOMEM, "no memory for model '%s'", config->name);
    int code = config->upstream ? open_elsewhere(server, model, config, index)
               : config->experts || config->steps
                   ? lm_model_open_virtual(model, config, index, parts->at, parts->known)
                   : lm_model_open(model, &shared->ort, config, index, sessions);
    if (code) {
        free(model);
        return code;
    }
    model->reply_text_bytes = lm_model_reply_text_bytes(model);
    if (model->input_plan.has_images)
        model->picture_bytes = lm_image_rows_bytes_max(&model->input_plan.image);
    if (config->isolation == LUMEN_ISOLATION_PROCESS && !lm_model_is_virtual(model))
        code = lm_server_isolate(server, model, config);
    if (!code) code = lm_server_copy_weights(server, model);
    if (!code) code = set_batch(server, model, config);
    if (code) {
        lm_server_close_model(server, model);
        return code;
    }
    *model_out = model;
    return 0;
}

int lumen_add_model(lumen_server *server, const lumen_model_config *config, uint32_t *index_out) {
    struct lm_model_set *set = server->set;
    struct lm_model *model;
    if (server->state != SERVER_OPEN)
        return lm_error(LUMEN_E_STATE, "models are added before lumen_start");
    if (set->description) return lm_error(LUMEN_E_STATE, "models are added before lumen_describe");
    if (set->count == server->names_max)
        return lm_error(LUMEN_E_INVALID, "models: expected at most %u", server->names_max);
    if (lm_model_set_named(set, config->name))
        return lm_error(LUMEN_E_INVALID, "models: the name '%s' is given twice", config->name);
    struct lm_parts parts = lm_server_parts(server);
    int code = lm_server_open_model(server, config, set->count, &parts, &model);
    if (code) return code;
    model->number = server->numbers[model->index] = (uint16_t)model->index;
    code = lm_shared_add_model(&server->shared, model, config);
    if (code) {
        lm_server_close_model(server, model);
        return code;
    }
    if (!model->source.optimised.bytes && !lm_model_is_virtual(model) &&
        model->source.providers.count == 0) {
        char line[LM_NAME_BYTES_MAX + 128];
        snprintf(line, sizeof line,
                 "model '%s' cannot be kept in ONNX Runtime's own format: each worker holds its "
                 "own weights",
                 model->name);
        lm_server_note(server, line);
    }
    *index_out = model->index;
    model->signature = server->signatures[model->index] = 1;
    code = lm_model_set_add(set, model);
    if (code) lm_server_close_model(server, model);
    return code;
}

/* ---- sets ---- */

struct lm_model_set *lm_server_new_set(void) {
    return zeroed(sizeof(struct lm_model_set));
}

void lm_server_close_set(lumen_server *server, struct lm_model_set *set) {
    free(set->description);
    lm_http_documents_close(set);
    lm_request_lists_close(set->lists);
    for (uint32_t m = 0; m < set->count; m++) {
        if (--set->models[m]->sets == 0) lm_server_close_model(server, set->models[m]);
    }
    lm_model_set_close(set);
    free(set);
}

int lm_server_describe_set(struct lm_model_set *set) {
    if (set->description) return 0;
    return lm_describe(set->models, set->count, LUMEN_VERSION, &set->description,
                       &set->description_bytes);
}

int lm_server_document_set(const lumen_server *server, struct lm_model_set *set,
                           const struct lm_model_set *before) {
    const struct lm_shared *shared = &server->shared;
    const struct lm_http_server http = {.name = server->name,
                                        .version = LUMEN_VERSION,
                                        .port = server->info.port,
                                        .metrics_port = server->metrics_port,
                                        .worker_count = lm_shared_parallel(shared),
                                        .requests_max = shared->config.queue_capacity,
                                        .shares_memory = shared->config.shared_memory,
                                        .errands = shared->errands};
    return lm_http_documents_open(set, before, &http);
}

int lm_server_make_set(lumen_server *server, uint32_t index, struct lm_model *model,
                       struct lm_model_set **set_out) {
    struct lm_shared *shared = &server->shared;
    const struct lm_model_set *now = server->set;
    struct lm_model_set *next = lm_server_new_set();
    if (!next) return lm_error(LUMEN_E_NOMEM, "no memory for a set of models");
    int code = 0;
    if (model) model->sets++; /* the caller's */
    for (uint32_t m = 0; m < now->count; m++) {
        if (!code && now->models[m]->index != index) code = lm_model_set_add(next, now->models[m]);
    }
    if (!code && model) code = lm_model_set_add(next, model);
    if (!code) code = lm_request_lists_open(next, now);
    for (uint32_t i = 0; !code && i < shared->io_count; i++)
        code = lm_request_lists_hold(next->lists, &shared->ios[i]);
    if (!code) code = lm_server_describe_set(next);
    if (!code) code = lm_server_document_set(server, next, now);
    *set_out = next;
    if (code) {
        char reason[256];
        snprintf(reason, sizeof reason, "%s", lm_error_last());
        lm_server_close_set(server, next);
        code = lm_error(code, "%s", reason);
    }
    if (model) model->sets--;
    return code;
}

void lm_server_publish_set(lumen_server *server, struct lm_model_set *next) {
    lm_server_bind_fallbacks(server, next);
    server->set = next;
    server->info.models = next->count;
    lm_reload_publish_models(&server->shared, next);
}

void lm_server_describe_anew(lumen_server *server) {
    struct lm_model_set *next = NULL;
    if (lm_server_make_set(server, LUMEN_MODELS_MAX, NULL, &next) == 0)
        lm_server_publish_set(server, next);
}
