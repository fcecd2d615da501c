/* http_documents.c: see http_documents.h. */
#include "dialects/http_documents.h"

#include <stdlib.h>

#include "base/error.h"
#include "formats/http_page.h"
#include "formats/oip_config.h"
#include "formats/texts_info.h"
#include "lumen.h"

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

int lm_http_documents_open(struct lm_model_set *set, const struct lm_http_server *server) {
    struct lm_http_documents *documents = calloc(1, sizeof *documents);
    set->documents = documents;
    if (!documents) return lm_error(LUMEN_E_NOMEM, "no memory for what HTTP answers");
    int code = open_metadata(&documents->server, server);
    if (!code) code = lm_oip_repository_index(set->models, set->count, &documents->index);
    if (!code) code = lm_rows_model_names(set->models, set->count, &documents->names);
    if (!code)
        code = lm_http_page(set->models, set->count, server->version, server->port,
                            server->metrics_port, &documents->page);
    const struct lm_texts_info info = {server->version, server->worker_count, server->requests_max};
    if (!code) code = lm_texts_info_write(set->models, set->count, &info, &documents->info);
    for (uint32_t m = 0; !code && m < set->count; m++) {
        const struct lm_model *model = set->models[m];
        const uint32_t at = model->index;
        code = lm_oip_model_metadata(model, set->models, set->count, &documents->models[at]);
        if (!code) code = lm_oip_model_ready(model, &documents->ready[at]);
        if (!code) code = lm_rows_model_state(model, &documents->states[at]);
        if (!code) code = lm_rows_model_signature(model, &documents->signatures[at]);
        if (!code) code = lm_oip_model_config(model, server->worker_count, &documents->configs[at]);
    }
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
    for (uint32_t m = 0; m < LUMEN_MODELS_MAX; m++) {
        lm_oip_document_close(&documents->models[m]);
        lm_oip_document_close(&documents->configs[m]);
        lm_oip_document_close(&documents->ready[m]);
        lm_oip_document_close(&documents->states[m]);
        lm_oip_document_close(&documents->signatures[m]);
    }
    free(documents);
    set->documents = NULL;
}
