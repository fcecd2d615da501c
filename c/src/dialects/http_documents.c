/* http_documents.c: see http_documents.h. */
#include "dialects/http_documents.h"

#include <stdlib.h>

#include "base/error.h"
#include "parts/http_page.h"

int lm_http_documents_open(struct lm_shared *shared, const char *version, uint32_t port) {
    struct lm_http_documents *documents = calloc(1, sizeof *documents);
    shared->documents = documents;
    if (!documents) return lm_error(LUMEN_E_NOMEM, "no memory for what HTTP answers");
    int code = lm_oip_server_metadata(version, &documents->server);
    if (!code)
        code = lm_oip_repository_index(shared->models, shared->model_count, &documents->index);
    if (!code)
        code = lm_http_page(shared->models, shared->model_count, version, port,
                            shared->metrics_port, &documents->page);
    for (uint32_t m = 0; !code && m < shared->model_count; m++) {
        code = lm_oip_model_metadata(&shared->models[m], &documents->models[m]);
        if (!code) code = lm_oip_model_ready(&shared->models[m], &documents->ready[m]);
        if (code) break;
        code =
            lm_oip_model_config(&shared->models[m], shared->worker_count, &documents->configs[m]);
    }
    return code;
}

void lm_http_documents_close(struct lm_shared *shared) {
    struct lm_http_documents *documents = shared->documents;
    if (!documents) return;
    lm_oip_document_close(&documents->page);
    lm_oip_document_close(&documents->server);
    lm_oip_document_close(&documents->index);
    for (uint32_t m = 0; m < shared->model_count; m++) {
        lm_oip_document_close(&documents->models[m]);
        lm_oip_document_close(&documents->configs[m]);
        lm_oip_document_close(&documents->ready[m]);
    }
    free(documents);
    shared->documents = NULL;
}
