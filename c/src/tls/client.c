/* client.c: see client.h. */
#include "tls/client.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tls/certificate.h"

enum { AUTHORITIES_MAX = 256 };

static int refuse(const struct lm_openssl *openssl, const char *what) {
    return lm_error(LUMEN_E_UNSUPPORTED, "TLS: %s: OpenSSL says: %s", what,
                    lm_openssl_why(openssl));
}

static int trust_authorities(const struct lm_tls_client *client, const struct lm_tls_trust *trust) {
    const struct lm_openssl *openssl = client->openssl;
    X509 *authorities[AUTHORITIES_MAX];
    if (!trust->authorities)
        return openssl->SSL_CTX_set_default_verify_paths(client->context) == 1
                   ? 0
                   : refuse(openssl, "the system's authorities");
    const uint32_t count = lm_certificates_read(openssl, trust->authorities, trust->source,
                                                authorities, AUTHORITIES_MAX);
    for (uint32_t a = 0; a < count; a++) {
        (void)openssl->X509_STORE_add_cert(openssl->SSL_CTX_get_cert_store(client->context),
                                           authorities[a]);
        openssl->X509_free(authorities[a]);
    }
    openssl->ERR_clear_error();
    return count ? 0 : LUMEN_E_INVALID;
}

int lm_tls_client_open(struct lm_tls_client **client_out, const struct lm_tls_trust *trust,
                       const char *protocols) {
    *client_out = NULL;
    const struct lm_openssl *openssl = lm_openssl();
    if (!openssl) return LUMEN_E_UNSUPPORTED;
    struct lm_tls_client *client = calloc(1, sizeof *client);
    if (!client) return lm_error(LUMEN_E_NOMEM, "no memory for TLS");
    client->openssl = openssl;
    client->context = openssl->SSL_CTX_new(openssl->TLS_client_method());
    int code = client->context ? 0 : refuse(openssl, "a context");
    if (!code) {
        lm_tls_set_modes(openssl, client->context);
        openssl->SSL_CTX_set_verify(client->context, LM_SSL_VERIFY_PEER, NULL);
        openssl->SSL_CTX_set_msg_callback(client->context, lm_tls_see_message);
        if (openssl->SSL_CTX_ctrl(client->context, LM_SSL_CTRL_SET_MIN_PROTO_VERSION,
                                  LM_TLS1_2_VERSION, NULL) != 1)
            code = refuse(openssl, "TLS 1.2");
        if (!code && protocols &&
            openssl->SSL_CTX_set_alpn_protos(client->context, (const unsigned char *)protocols,
                                             (unsigned int)strlen(protocols)))
            code = refuse(openssl, "ALPN");
    }
    if (!code) code = trust_authorities(client, trust);
    if (!code && trust->certificate)
        code = lm_certificate_use(openssl, client->context, trust->certificate, trust->key,
                                  trust->source, NULL);
    if (code) {
        lm_tls_client_close(client);
        return code;
    }
    *client_out = client;
    return 0;
}

void lm_tls_client_close(struct lm_tls_client *client) {
    if (!client) return;
    client->openssl->SSL_CTX_free(client->context);
    free(client);
}

/* ---- handshakes ---- */

static bool is_address(const char *host) {
    uint8_t bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

struct lm_tls_session *lm_tls_client_begin(const struct lm_tls_client *client, int fd,
                                           const char *host, SSL_SESSION *ticket) {
    const struct lm_openssl *openssl = client->openssl;
    struct lm_tls_session *session = lm_tls_session_open(openssl, client->context, fd);
    if (!session) return NULL;
    openssl->SSL_set_connect_state(session->ssl);
    if (ticket) (void)openssl->SSL_set_session(session->ssl, ticket);
    if (is_address(host)) return session; /* RFC 6066: a server is told a name, never an address */
    (void)openssl->SSL_ctrl(session->ssl, LM_SSL_CTRL_SET_TLSEXT_HOSTNAME,
                            LM_TLSEXT_NAMETYPE_HOST_NAME, (void *)(uintptr_t)host);
    return session;
}

static bool is_named(const struct lm_openssl *openssl, const struct lm_tls_session *session,
                     const char *host) {
    X509 *certificate = openssl->SSL_get1_peer_certificate(session->ssl);
    const int is_for = !certificate       ? 0
                       : is_address(host) ? openssl->X509_check_ip_asc(certificate, host, 0)
                                          : openssl->X509_check_host(certificate, host, 0, 0, NULL);
    openssl->X509_free(certificate);
    return is_for == 1;
}

enum lm_tls_greeting lm_tls_client_greet(const struct lm_tls_client *client,
                                         const struct lm_tls_session *session, const char *host,
                                         char *why, size_t why_bytes) {
    const struct lm_openssl *openssl = client->openssl;
    openssl->ERR_clear_error();
    const int result = openssl->SSL_do_handshake(session->ssl);
    if (result == 1 && is_named(openssl, session, host)) return LM_TLS_GREETED;
    if (result == 1) {
        snprintf(why, why_bytes, "expected a certificate for %.128s, found one for others", host);
        return LM_TLS_REFUSED;
    }
    if (openssl->SSL_get_error(session->ssl, result) == LM_SSL_ERROR_WANT_READ) return LM_TLS_WAITS;
    const char *reason = lm_openssl_why(openssl);
    snprintf(why, why_bytes, "no connection with TLS to %.128s: %s", host,
             reason[0] ? reason : "the server closed it");
    return LM_TLS_REFUSED;
}

bool lm_tls_client_has_chosen(const struct lm_tls_client *client,
                              const struct lm_tls_session *session, const char *protocol) {
    const unsigned char *chosen = NULL;
    unsigned int bytes = 0;
    client->openssl->SSL_get0_alpn_selected(session->ssl, &chosen, &bytes);
    return bytes == (unsigned char)protocol[0] && memcmp(chosen, protocol + 1, bytes) == 0;
}
