/* http_documents.c: see http_documents.h. */
#include "dialects/http_documents.h"

#include <stdlib.h>

#include "base/error.h"
#include "parts/http_page.h"

int lm_http_documents_open(struct lm_model_set *set, const struct lm_http_server *server) {
    struct lm_http_documents *documents = calloc(1, sizeof *documents);
    set->documents = documents;
    if (!documents) return lm_error(LUMEN_E_NOMEM, "no memory for what HTTP answers");
    int code = lm_oip_server_metadata(server->name, server->version, server->shares_memory,
                                      &documents->server);
    if (!code) code = lm_oip_repository_index(set->models, set->count, &documents->index);
    if (!code) code = lm_rows_model_names(set->models, set->count, &documents->names);
    if (!code)
        code = lm_http_page(set->models, set->count, server->version, server->port,
                            server->metrics_port, &documents->page);
    for (uint32_t m = 0; !code && m < set->count; m++) {
        const struct lm_model *model = set->models[m];
        const uint32_t at = model->index;
        code = lm_oip_model_metadata(model, set->models, set->count, &documents->models[at]);
        if (!code) code = lm_oip_model_ready(model, &documents->ready[at]);
        if (!code) code = lm_rows_model_state(model, &documents->states[at]);
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
    for (uint32_t m = 0; m < LUMEN_MODELS_MAX; m++) {
        lm_oip_document_close(&documents->models[m]);
        lm_oip_document_close(&documents->configs[m]);
        lm_oip_document_close(&documents->ready[m]);
        lm_oip_document_close(&documents->states[m]);
    }
    free(documents);
    set->documents = NULL;
}
