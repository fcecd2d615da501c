/* sessions.c: see sessions.h. */
#include "tls/sessions.h"

#include <stdlib.h>

#include "base/error.h"

int lm_tls_sessions_open(struct lm_tls_sessions **sessions_out) {
    *sessions_out = NULL;
    const struct lm_openssl *openssl = lm_openssl();
    if (!openssl) return LUMEN_E_UNSUPPORTED;
    struct lm_tls_sessions *sessions = calloc(1, sizeof *sessions);
    if (!sessions ||
        lm_mapping_reserve(&sessions->memory, LM_TLS_DESCRIPTORS_MAX * sizeof *sessions->entries)) {
        free(sessions);
        return lm_error(LUMEN_E_NOMEM, "no memory for TLS");
    }
    sessions->openssl = openssl;
    sessions->entries = sessions->memory.base;
    *sessions_out = sessions;
    return 0;
}

void lm_tls_sessions_close(struct lm_tls_sessions *sessions) {
    if (!sessions) return;
    lm_mapping_close(&sessions->memory);
    free(sessions);
}
