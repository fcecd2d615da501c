/* http_documents.c: see http_documents.h. */
#include "dialects/http_documents.h"

#include <stdlib.h>

#include "base/error.h"
#include "formats/http_page.h"
#include "formats/oip_config.h"
#include "formats/oip_document.h"
#include "formats/texts_info.h"
#include "lumen.h"
#include "models/run_place.h"

/* Triton's names of what is served here, and of nothing else. Priorities (schedule_policy) and
 * memory of CUDA are not. */
static int open_metadata(struct lm_oip_document *document, const struct lm_http_server *server) {
    enum { ALWAYS, BY_CALL, SHARED_MEMORY };
    static const struct {
        const char *name;
        uint8_t when;
        uint8_t errand; /* of BY_CALL */
    } all[] = {{"classification", ALWAYS, 0},
               {"sequence", ALWAYS, 0},
               {"model_repository", BY_CALL, LUMEN_ERRAND_LOAD},
               {"model_repository(unload_dependents)", BY_CALL, LUMEN_ERRAND_UNLOAD},
               {"model_configuration", ALWAYS, 0},
               {"system_shared_memory", SHARED_MEMORY, 0},
               {"binary_tensor_data", ALWAYS, 0},
               {"parameters", ALWAYS, 0},
               {"statistics", ALWAYS, 0},
               {"trace", BY_CALL, LUMEN_ERRAND_TRACE},
               {"logging", BY_CALL, LUMEN_ERRAND_LOGGING}};
    const char *there[sizeof all / sizeof all[0] + 1];
    uint32_t count = 0;
    for (size_t e = 0; e < sizeof all / sizeof all[0]; e++) {
        const bool by_call = server->errands && lm_errands_take(server->errands, all[e].errand);
        const bool is_there[] = {
            [ALWAYS] = true, [BY_CALL] = by_call, [SHARED_MEMORY] = server->shares_memory};
        if (is_there[all[e].when]) there[count++] = all[e].name;
    }
    there[count] = NULL;
    return lm_oip_server_metadata(server->name, server->version, there, document);
}

/* ---- one model ---- */

static void close_model(struct lm_http_model_documents *of_model) {
    if (!of_model || --of_model->sets > 0) return;
    lm_oip_document_close(&of_model->metadata);
    lm_oip_document_close(&of_model->config);
    lm_oip_document_close(&of_model->ready);
    lm_oip_document_close(&of_model->state_of_v1);
    lm_oip_document_close(&of_model->signature);
    free(of_model);
}

/* The versions of a model in a set. Returns how many there are. */
static uint32_t versions_of(const struct lm_model_set *set, const struct lm_model *model,
                            struct lm_model **versions) {
    uint32_t count = 0;
    for (struct lm_model *one = lm_model_set_next(set, model->base, NULL); one;
         one = lm_model_set_next(set, model->base, one))
        versions[count++] = one;
    return count;
}

/* Two sets in which this is the same say the same of a model: which versions it has, how many
 * workers there are, and who runs it. */
static uint64_t state_of(struct lm_model *const *versions, uint32_t count,
                         const struct lm_model *model, const struct lm_http_server *server) {
    uint64_t state = (uint64_t)server->worker_count << 1 | (lm_model_long_run_us(model) > 0);
    for (uint32_t v = 0; v < count; v++)
        state = (state ^ versions[v]->generation) * 1099511628211u; /* FNV's prime */
    return state;
}

static int write_model(const struct lm_model *model, struct lm_model *const *versions,
                       uint32_t count, const struct lm_http_server *server,
                       struct lm_http_model_documents *out) {
    int code = lm_oip_model_metadata(model, versions, count, &out->metadata);
    if (!code) code = lm_oip_model_ready(model, &out->ready);
    if (!code) code = lm_rows_model_state(model, &out->state_of_v1);
    if (!code) code = lm_rows_model_signature(model, &out->signature);
    if (!code) code = lm_oip_model_config(model, server->worker_count, &out->config);
    return code;
}

/* `versions` has room for those of any model. */
static int open_model(struct lm_model_set *set, const struct lm_model_set *before,
                      const struct lm_model *model, const struct lm_http_server *server,
                      struct lm_model **versions) {
    struct lm_http_model_documents **place = &set->documents->of[model->index];
    const uint32_t count = versions_of(set, model, versions);
    const uint64_t state = state_of(versions, count, model, server);
    if (before && lm_model_set_find(before, model->index) == model &&
        before->documents->of[model->index]->state == state) {
        *place = before->documents->of[model->index];
        (*place)->sets++;
        return 0;
    }
    *place = calloc(1, sizeof **place);
    if (!*place) return lm_oip_no_document();
    (*place)->sets = 1;
    (*place)->state = state;
    return write_model(model, versions, count, server, *place);
}

/* ---- all ---- */

/* Each name once: its model of the lowest version. */
static uint32_t names_of(const struct lm_model_set *set, struct lm_model **out) {
    uint32_t count = 0;
    for (uint32_t m = 0; m < set->count; m++) {
        const struct lm_model *model = set->models[m];
        bool is_lowest = true;
        for (const struct lm_model *one = lm_model_set_next(set, model->base, NULL); one;
             one = lm_model_set_next(set, model->base, one))
            is_lowest = is_lowest && one->version >= model->version;
        if (is_lowest) out[count++] = set->models[m];
    }
    return count;
}

static int open_all(struct lm_model_set *set, const struct lm_model_set *before,
                    const struct lm_http_server *server, struct lm_model **some) {
    struct lm_http_documents *documents = set->documents;
    const struct lm_texts_info info = {server->version, server->worker_count, server->requests_max};
    int code = open_metadata(&documents->server, server);
    if (!code) code = lm_oip_repository_index(set->models, set->count, &documents->index);
    if (!code) code = lm_rows_model_names(some, names_of(set, some), &documents->names);
    if (!code)
        code = lm_http_page(set->models, set->count, server->version, server->port,
                            server->metrics_port, &documents->page);
    if (!code) code = lm_texts_info_write(set->models, set->count, &info, &documents->info);
    for (uint32_t m = 0; !code && m < set->count; m++)
        code = open_model(set, before, set->models[m], server, some);
    return code;
}

int lm_http_documents_open(struct lm_model_set *set, const struct lm_model_set *before,
                           const struct lm_http_server *server) {
    struct lm_http_documents *documents = calloc(1, sizeof *documents);
    struct lm_model **some = calloc(set->count + 1, sizeof *some);
    int code = LUMEN_E_NOMEM;
    set->documents = documents;
    if (documents) documents->of = calloc(set->places + 1, sizeof(void *));
    if (documents && documents->of && some)
        code = open_all(set, before, server, some);
    else
        code = lm_error(code, "no memory for what HTTP answers");
    free(some);
    return code;
}

void lm_http_documents_close(struct lm_model_set *set) {
    struct lm_http_documents *documents = set->documents;
    if (!documents) return;
    lm_oip_document_close(&documents->page);
    lm_oip_document_close(&documents->server);
    lm_oip_document_close(&documents->index);
    lm_oip_document_close(&documents->names);
    lm_oip_document_close(&documents->info);
    for (uint32_t m = 0; documents->of && m < set->places; m++) close_model(documents->of[m]);
    free(documents->of);
    free(documents);
    set->documents = NULL;
}
