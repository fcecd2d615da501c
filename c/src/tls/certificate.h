/* certificate.h: reads certificates, and makes one that signs itself, for trying. Any thread, but
 * never one that answers requests.
 */
#ifndef LM_TLS_CERTIFICATE_H
#define LM_TLS_CERTIFICATE_H

#include <stdbool.h>

#include "lumen.h"
#include "tls/openssl.h"

enum { LM_CERTIFICATE_CHAIN_MAX = 8 };

/* The chain of a PEM text: its first certificate, and with `issuers` those behind it. The caller
 * frees them. Returns how many there are; 0: lm_error_last says what is wrong. */
uint32_t lm_certificates_read(const struct lm_openssl *openssl, const char *pem, const char *source,
                              X509 **certificates_out, uint32_t capacity);
/* Shows a certificate, with its chain and its key, in a context. `first_out` gets the certificate,
 * for the caller to free, also where it cannot be used; NULL: nobody wants it. Returns 0 or
 * LUMEN_E_INVALID. */
int lm_certificate_use(const struct lm_openssl *openssl, SSL_CTX *context, const char *pem,
                       const char *key_pem, const char *source, X509 **first_out);
/* The SHA-256 of a client's name: of the first URI that its certificate says, otherwise of the
 * first DNS name. false: it says none. */
bool lm_certificate_subject(const struct lm_openssl *openssl, X509 *certificate, uint8_t *hash_out);
/* Whether the certificate has expired. */
bool lm_certificate_is_over(const struct lm_openssl *openssl, const X509 *certificate);

#endif
