/* http_documents.h: what HTTP answers of the server and its models, written when a set of models is
 * made. Control thread only; afterwards the I/O threads read it.
 */
#ifndef LM_DIALECTS_HTTP_DOCUMENTS_H
#define LM_DIALECTS_HTTP_DOCUMENTS_H

#include "flow/model_set.h"
#include "formats/oip_metadata.h"
#include "parts/errands.h"

/* The documents of one model. Sets in which they are the same share them. */
struct lm_http_model_documents {
    uint32_t sets;  /* that list it */
    uint64_t state; /* of what it depends on, beside the model itself */
    struct lm_oip_document metadata, config, ready, state_of_v1, signature;
};

struct lm_http_documents {
    struct lm_oip_document page; /* HTML */
    struct lm_oip_document server;
    struct lm_oip_document index;
    struct lm_oip_document names;
    struct lm_oip_document info;         /* of the first model of texts; empty: there is none */
    struct lm_http_model_documents **of; /* each model's, at its index */
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

/* Once the set's models are known. What did not change since the set `before`, which may be NULL,
 * is not written again. Returns 0 or LUMEN_E_NOMEM. */
int lm_http_documents_open(struct lm_model_set *set, const struct lm_model_set *before,
                           const struct lm_http_server *server);
void lm_http_documents_close(struct lm_model_set *set);

#endif
