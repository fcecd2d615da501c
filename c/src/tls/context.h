/* context.h: the certificates that a server shows, and what it accepts of clients, as OpenSSL wants
 * them. Made by the control thread; then the thread of the handshakes alone uses and closes it.
 */
#ifndef LM_TLS_CONTEXT_H
#define LM_TLS_CONTEXT_H

#include "lumen.h"
#include "tls/tickets.h"

struct lm_tls_identity {
    SSL_CTX *context;
    X509 *certificate;
    char **hosts; /* that it is for; none: those that the certificate says */
    uint32_t host_count;
};

struct lm_tls_context {
    const struct lm_openssl *openssl;
    struct lm_tls_identity identities[LUMEN_CERTIFICATES_MAX];
    uint32_t count;
    struct lm_tls_tickets tickets;  /* its own: nobody comes back by what another has let in */
    uint32_t uses;                  /* handshakes that are under way with it */
    struct lm_tls_context *retired; /* the one before it */
};

/* Checks that each key is its certificate's. Returns 0 or LUMEN_E_*. */
int lm_tls_context_open(struct lm_tls_context **context_out, const lumen_tls_config *config);
/* NULL is allowed. Sessions that were made of it keep what they need. */
void lm_tls_context_close(struct lm_tls_context *context);
/* The certificate that clients see which name no host. */
static inline SSL_CTX *lm_tls_context_first(const struct lm_tls_context *context) {
    return context->identities[0].context;
}

#endif
