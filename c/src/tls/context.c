/* context.c: see context.h. */
#include "tls/context.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/error.h"
#include "tls/certificate.h"
#include "tls/session.h"

enum { AUTHORITIES_MAX = 256, NAME_BYTES_MAX = 255, CERTIFICATES_BYTES = 32 << 10 };

/* ---- the client's first message ---- */

/* The name that a server_name extension holds: a list's length, a kind, a name's length, the name.
 * NULL: it holds none. Source: RFC 6066, section 3. */
static const char *server_name(const unsigned char *at, size_t bytes, char *out) {
    if (bytes < 5 || at[2] != LM_TLSEXT_NAMETYPE_HOST_NAME) return NULL;
    const size_t name_bytes = (size_t)at[3] << 8 | at[4];
    if (name_bytes == 0 || name_bytes > bytes - 5 || name_bytes > NAME_BYTES_MAX) return NULL;
    if (memchr(at + 5, 0, name_bytes)) return NULL;
    memcpy(out, at + 5, name_bytes);
    out[name_bytes] = '\0';
    return out;
}

/* "*.example.org" is for one label more. */
static bool is_for(const char *host, const char *name) {
    const char *dot = strchr(name, '.');
    if (host[0] == '*' && host[1] == '.') return dot && strcasecmp(dot, host + 1) == 0;
    return strcasecmp(host, name) == 0;
}

static bool identity_is_for(const struct lm_openssl *openssl,
                            const struct lm_tls_identity *identity, const char *name) {
    if (!identity->host_count)
        return openssl->X509_check_host(identity->certificate, name, 0, 0, NULL) == 1;
    for (uint32_t h = 0; h < identity->host_count; h++)
        if (is_for(identity->hosts[h], name)) return true;
    return false;
}

/* Shows the certificate that is for the name that the client asks for, the first one otherwise. */
static int choose(SSL *ssl, int *alert, void *argument) {
    const struct lm_tls_context *context = argument;
    const unsigned char *at;
    size_t bytes;
    char text[NAME_BYTES_MAX + 1];
    (void)alert;
    if (context->openssl->SSL_client_hello_get0_ext(ssl, LM_TLSEXT_TYPE_SERVER_NAME, &at, &bytes) !=
        1)
        return LM_SSL_CLIENT_HELLO_SUCCESS;
    const char *name = server_name(at, bytes, text);
    for (uint32_t i = 0; name && i < context->count; i++) {
        if (!identity_is_for(context->openssl, &context->identities[i], name)) continue;
        (void)context->openssl->SSL_set_SSL_CTX(ssl, context->identities[i].context);
        break;
    }
    return LM_SSL_CLIENT_HELLO_SUCCESS;
}

/* The protocols of the same port, in the server's order; the first bytes choose all the same. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_bytes,
                           const unsigned char *in, unsigned int in_bytes, void *argument) {
    static const char *const protocols[] = {"h2", "http/1.1", "lumen/1"};
    (void)ssl, (void)argument;
    for (size_t p = 0; p < sizeof protocols / sizeof protocols[0]; p++) {
        const size_t bytes = strlen(protocols[p]);
        for (unsigned int at = 0; at + 1 + bytes <= in_bytes; at += 1u + in[at]) {
            if (in[at] != bytes || memcmp(in + at + 1, protocols[p], bytes) != 0) continue;
            *out = in + at + 1;
            *out_bytes = (unsigned char)bytes;
            return LM_SSL_TLSEXT_ERR_OK;
        }
    }
    return LM_SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* ---- opening ---- */

/* The first of these that this library takes: with the post-quantum one from OpenSSL 3.5 on, and
 * without X25519 where only approved ones are. */
static bool set_groups(const struct lm_openssl *openssl, SSL_CTX *context) {
    static const char *const lists[] = {"X25519MLKEM768:X25519:P-256:P-384", "X25519:P-256:P-384",
                                        "P-256:P-384"};
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++)
        if (openssl->SSL_CTX_ctrl(context, LM_SSL_CTRL_SET_GROUPS_LIST, 0,
                                  (void *)(uintptr_t)lists[l]) == 1)
            return true;
    return false;
}

/* TLS 1.2, then 1.3: the one of which a core decrypts a third more bytes first; ChaCha20 first for
 * a client that asks for it first, as one without instructions for AES does. */
static bool set_ciphers(const struct lm_openssl *openssl, SSL_CTX *context) {
    (void)openssl->SSL_CTX_set_options(
        context, (uint64_t)(LM_SSL_OP_CIPHER_SERVER_PREFERENCE | LM_SSL_OP_PRIORITIZE_CHACHA));
    return openssl->SSL_CTX_set_cipher_list(context, "ECDHE-ECDSA-AES128-GCM-SHA256:"
                                                     "ECDHE-RSA-AES128-GCM-SHA256:ECDHE+AESGCM:"
                                                     "ECDHE+CHACHA20") == 1 &&
           openssl->SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:"
                                                      "TLS_AES_256_GCM_SHA384:"
                                                      "TLS_CHACHA20_POLY1305_SHA256") == 1;
}

static bool set_protocol(const struct lm_openssl *openssl, SSL_CTX *context,
                         struct lm_tls_context *owner) {
    static const unsigned char session_context[] = "lumen";
    (void)openssl->SSL_CTX_set_options(
        context, (uint64_t)(LM_SSL_OP_NO_COMPRESSION | LM_SSL_OP_NO_RENEGOTIATION));
    lm_tls_set_modes(openssl, context);
    (void)openssl->SSL_CTX_ctrl(context, LM_SSL_CTRL_SET_SESS_CACHE_MODE, 0, NULL);
    (void)openssl->SSL_CTX_ctrl(context, LM_SSL_CTRL_SET_MAX_CERT_LIST, CERTIFICATES_BYTES, NULL);
    openssl->SSL_CTX_set_client_hello_cb(context, choose, owner);
    openssl->SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    openssl->SSL_CTX_set_msg_callback(context, lm_tls_see_message);
    return openssl->SSL_CTX_ctrl(context, LM_SSL_CTRL_SET_MIN_PROTO_VERSION, LM_TLS1_2_VERSION,
                                 NULL) == 1 &&
           set_ciphers(openssl, context) && set_groups(openssl, context) &&
           openssl->SSL_CTX_set_session_id_context(context, session_context,
                                                   sizeof session_context - 1) == 1 &&
           openssl->SSL_CTX_set_num_tickets(context, 1) == 1 &&
           openssl->SSL_CTX_set_tlsext_ticket_key_evp_cb(context, lm_tls_ticket_key) == 1;
}

/* Whose certificates clients show. */
static int set_clients(const struct lm_openssl *openssl, SSL_CTX *context,
                       const lumen_tls_config *config) {
    X509 *authorities[AUTHORITIES_MAX];
    if (config->clients == LUMEN_TLS_CLIENTS_ANY) return 0;
    if (!config->client_ca)
        return lm_error(LUMEN_E_INVALID, "server.tls.client_ca: expected the certificates of the "
                                         "authorities of clients, found none");
    const uint32_t count = lm_certificates_read(openssl, config->client_ca, "server.tls.client_ca",
                                                authorities, AUTHORITIES_MAX);
    if (count == 0) return LUMEN_E_INVALID;
    for (uint32_t a = 0; a < count; a++) {
        (void)openssl->X509_STORE_add_cert(openssl->SSL_CTX_get_cert_store(context),
                                           authorities[a]);
        (void)openssl->SSL_CTX_add_client_CA(context, authorities[a]);
        openssl->X509_free(authorities[a]);
    }
    const int must =
        config->clients == LUMEN_TLS_CLIENTS_CERTIFIED ? LM_SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0;
    openssl->SSL_CTX_set_verify(context, LM_SSL_VERIFY_PEER | must, NULL);
    openssl->SSL_CTX_set_verify_depth(context, 3);
    openssl->ERR_clear_error();
    return 0;
}

static int copy_hosts(struct lm_tls_identity *identity, const lumen_certificate *config) {
    if (config->host_count == 0) return 0;
    identity->hosts = calloc(config->host_count, sizeof *identity->hosts);
    for (uint32_t h = 0; identity->hosts && h < config->host_count; h++) {
        identity->hosts[h] = strdup(config->hosts[h]);
        if (!identity->hosts[h]) break;
        identity->host_count++;
    }
    return identity->host_count == config->host_count
               ? 0
               : lm_error(LUMEN_E_NOMEM, "no memory for the names of certificates");
}

static int open_identity(struct lm_tls_context *context, const lumen_tls_config *config,
                         const lumen_certificate *certificate) {
    const struct lm_openssl *openssl = context->openssl;
    struct lm_tls_identity *identity = &context->identities[context->count++];
    identity->context = openssl->SSL_CTX_new(openssl->TLS_server_method());
    if (!identity->context || !set_protocol(openssl, identity->context, context))
        return lm_error(LUMEN_E_UNSUPPORTED, "server.tls: OpenSSL says: %s",
                        lm_openssl_why(openssl));
    int code = lm_certificate_use(openssl, identity->context, certificate->certificate,
                                  certificate->key, certificate->source, &identity->certificate);
    if (!code) code = set_clients(openssl, identity->context, config);
    return code ? code : copy_hosts(identity, certificate);
}

int lm_tls_context_open(struct lm_tls_context **context_out, const lumen_tls_config *config) {
    const struct lm_openssl *openssl = lm_openssl();
    *context_out = NULL;
    if (!openssl) return LUMEN_E_UNSUPPORTED;
    if (config->certificate_count == 0 || config->certificate_count > LUMEN_CERTIFICATES_MAX)
        return lm_error(LUMEN_E_INVALID, "server.tls.certificates: expected 1 to %d, found %u",
                        LUMEN_CERTIFICATES_MAX, config->certificate_count);
    if (config->clients > LUMEN_TLS_CLIENTS_CERTIFIED)
        return lm_error(LUMEN_E_INVALID, "server.tls.clients: expected 0 to %d, found %u",
                        LUMEN_TLS_CLIENTS_CERTIFIED, config->clients);
    struct lm_tls_context *context = calloc(1, sizeof *context);
    if (!context) return lm_error(LUMEN_E_NOMEM, "no memory for certificates");
    context->openssl = openssl;
    context->tickets.openssl = openssl;
    int code = 0;
    for (uint32_t c = 0; !code && c < config->certificate_count; c++)
        code = open_identity(context, config, &config->certificates[c]);
    if (code) {
        lm_tls_context_close(context);
        return code;
    }
    *context_out = context;
    return 0;
}

void lm_tls_context_close(struct lm_tls_context *context) {
    if (!context) return;
    lm_tls_tickets_forget(&context->tickets);
    for (uint32_t i = 0; i < context->count; i++) {
        struct lm_tls_identity *identity = &context->identities[i];
        context->openssl->SSL_CTX_free(identity->context);
        context->openssl->X509_free(identity->certificate);
        for (uint32_t h = 0; h < identity->host_count; h++) free(identity->hosts[h]);
        free(identity->hosts);
    }
    free(context);
}
