/* loadgen_transport.c: how the load generator's bytes go out, with and without TLS, and the
 * client's side of TLS; called by loadgen.c and loadgen_setup.c only.
 *
 * A connection is made only to a server whose certificate is for the host that was asked for:
 * requests may hold a key's token.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "load/loadgen.h"
#include "tls/session.h"

struct lm_load_tls {
    const struct lm_openssl *openssl;
    SSL_CTX *context;
    const char *host;
    uint64_t now_ns;
    struct lm_tls_writer writer;
};

/* ---- life ---- */

static bool set_context(const struct lm_openssl *openssl, SSL_CTX *context) {
    lm_tls_set_modes(openssl, context);
    openssl->SSL_CTX_set_verify(context, LM_SSL_VERIFY_PEER, NULL);
    return openssl->SSL_CTX_set_default_verify_paths(context) == 1 &&
           openssl->SSL_CTX_ctrl(context, LM_SSL_CTRL_SET_MIN_PROTO_VERSION, LM_TLS1_2_VERSION,
                                 NULL) == 1;
}

int lm_load_tls_open(struct lm_load_tls **tls_out, const lumen_load_config *config) {
    *tls_out = NULL;
    if (!config->tls_host) return 0;
    const struct lm_openssl *openssl = lm_openssl();
    if (!openssl) return LUMEN_E_UNSUPPORTED;
    struct lm_load_tls *tls = calloc(1, sizeof *tls);
    if (!tls) return lm_error(LUMEN_E_NOMEM, "no memory for TLS");
    *tls = (struct lm_load_tls){.openssl = openssl, .host = config->tls_host};
    tls->context = openssl->SSL_CTX_new(openssl->TLS_client_method());
    if (!tls->context || !set_context(openssl, tls->context)) {
        lm_load_tls_close(tls);
        return lm_error(LUMEN_E_UNSUPPORTED, "TLS: OpenSSL says: %s", lm_openssl_why(openssl));
    }
    *tls_out = tls;
    return 0;
}

void lm_load_tls_close(struct lm_load_tls *tls) {
    if (!tls) return;
    tls->openssl->SSL_CTX_free(tls->context);
    free(tls);
}

void lm_load_tls_end(struct lm_load_tls *tls, struct lm_load_connection *connection) {
    if (!tls) return;
    lm_tls_session_close(tls->openssl, connection->session);
    connection->session = NULL;
}

/* ---- handshakes ---- */

static bool is_address(const char *host) {
    uint8_t bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static int begin(struct lm_load_tls *tls, struct lm_load_connection *connection) {
    struct lm_tls_session *session =
        lm_tls_session_open(tls->openssl, tls->context, connection->fd);
    if (!session) return lm_error(LUMEN_E_NOMEM, "no memory for TLS");
    connection->session = session;
    session->now_ns = &tls->now_ns;
    tls->openssl->SSL_set_connect_state(session->ssl);
    if (is_address(tls->host)) return 0; /* RFC 6066: the server is told a name, never an address */
    (void)tls->openssl->SSL_ctrl(session->ssl, LM_SSL_CTRL_SET_TLSEXT_HOSTNAME,
                                 LM_TLSEXT_NAMETYPE_HOST_NAME, (void *)(uintptr_t)tls->host);
    return 0;
}

static int check_name(const struct lm_load_tls *tls, const struct lm_tls_session *session) {
    const struct lm_openssl *openssl = tls->openssl;
    X509 *certificate = openssl->SSL_get1_peer_certificate(session->ssl);
    const int is_for = !certificate ? 0
                       : is_address(tls->host)
                           ? openssl->X509_check_ip_asc(certificate, tls->host, 0)
                           : openssl->X509_check_host(certificate, tls->host, 0, 0, NULL);
    openssl->X509_free(certificate);
    if (is_for == 1) return 0;
    return lm_error(LUMEN_E_IO, "expected a certificate for %s, found one for others", tls->host);
}

int lm_load_tls_greet(struct lm_load_tls *tls, struct lm_load_connection *connection) {
    const struct lm_openssl *openssl = tls->openssl;
    if (!connection->session) {
        const int code = begin(tls, connection);
        if (code) return code;
    }
    SSL *ssl = connection->session->ssl;
    openssl->ERR_clear_error();
    const int result = openssl->SSL_do_handshake(ssl);
    if (result == 1) return check_name(tls, connection->session);
    if (openssl->SSL_get_error(ssl, result) == LM_SSL_ERROR_WANT_READ) return LM_LOAD_TLS_WAITS;
    const char *why = lm_openssl_why(openssl);
    return lm_error(LUMEN_E_IO, "no connection with TLS to %s: %s", tls->host,
                    why[0] ? why : "the server closed it");
}

/* ---- bytes ---- */

static void advance(struct lm_load_connection *connection, size_t bytes) {
    for (int p = 0; p < 2; p++) {
        struct iovec *part = &connection->parts[p];
        const size_t taken = bytes < part->iov_len ? bytes : part->iov_len;
        part->iov_base = (uint8_t *)part->iov_base + taken;
        part->iov_len -= taken;
        bytes -= taken;
    }
}

static ssize_t write_some(struct lm_load_tls *tls, struct lm_load_connection *connection) {
    if (!tls) return sendmsg(connection->fd, &connection->message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return lm_tls_write(tls->openssl, connection->session, &tls->writer, &connection->message);
}

static size_t left_of(const struct lm_load_connection *connection) {
    return connection->parts[0].iov_len + connection->parts[1].iov_len;
}

const struct msghdr *lm_load_write(struct lm_load_tls *tls, struct lm_load_connection *connection) {
    const struct lm_tls_session *session = connection->session;
    while (left_of(connection) && !(session && session->rest)) {
        const ssize_t sent = write_some(tls, connection);
        if (sent > 0) advance(connection, (size_t)sent);
        if (!tls || sent <= 0) break; /* its receive tells of a broken socket */
    }
    if (session) return session->rest ? &session->rest_message : NULL;
    return left_of(connection) ? &connection->message : NULL;
}

bool lm_load_written(struct lm_load_tls *tls, struct lm_load_connection *connection,
                     int32_t result) {
    if (!tls) return result >= 0 && (size_t)result == left_of(connection);
    const bool is_whole = result >= 0 && lm_tls_rest_sent(connection->session, (size_t)result);
    if (!is_whole) lm_tls_rest_drop(connection->session);
    return is_whole;
}

ssize_t lm_load_tls_read(struct lm_load_tls *tls, struct lm_load_connection *connection,
                         const uint8_t **bytes_out) {
    /* Writing uses this buffer too: each caller takes the bytes before it writes. */
    *bytes_out = tls->writer.gathered;
    tls->now_ns = lm_now_ns();
    const ssize_t got = lm_tls_read(tls->openssl, connection->session, tls->writer.gathered,
                                    sizeof tls->writer.gathered);
    return got < 0 ? -errno : got;
}
