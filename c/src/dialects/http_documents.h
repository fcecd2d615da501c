/* http_documents.h: what HTTP answers of the server and its models, written once at start. Control
 * thread only; afterwards the I/O threads read it.
 */
#ifndef LM_DIALECTS_HTTP_DOCUMENTS_H
#define LM_DIALECTS_HTTP_DOCUMENTS_H

#include "flow/model_set.h"
#include "formats/oip_metadata.h"
#include "parts/errands.h"

struct lm_http_documents {
    struct lm_oip_document page; /* HTML */
    struct lm_oip_document server;
    struct lm_oip_document index;
    struct lm_oip_document names;
    struct lm_oip_document info; /* of the first model of texts; empty: there is none */
    /* Each model's, at its index. */
    struct lm_oip_document models[LUMEN_MODELS_MAX];
    struct lm_oip_document configs[LUMEN_MODELS_MAX];
    struct lm_oip_document ready[LUMEN_MODELS_MAX];
    struct lm_oip_document states[LUMEN_MODELS_MAX];
    struct lm_oip_document signatures[LUMEN_MODELS_MAX];
};

/* The server, as the documents describe it. */
struct lm_http_server {
    const char *name;
    const char *version;
    uint32_t port;
    uint32_t metrics_port; /* 0: none */
    uint32_t worker_count;
    uint32_t requests_max; /* that wait or run at a time */
    bool shares_memory;
    const struct lm_errands *errands; /* NULL: no calls to the control program */
};

/* Once the set's models are known. */
int lm_http_documents_open(struct lm_model_set *set, const struct lm_http_server *server);
void lm_http_documents_close(struct lm_model_set *set);

#endif
