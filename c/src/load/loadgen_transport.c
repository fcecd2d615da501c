/* loadgen_transport.c: how the load generator's bytes go out, with and without TLS, and the
 * client's side of TLS; called by loadgen.c and loadgen_setup.c only.
 *
 * A connection is made only to a server whose certificate is for the host that was asked for:
 * requests may hold a key's token.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "load/loadgen.h"
#include "tls/client.h"

struct lm_load_tls {
    struct lm_tls_client *client;
    const struct lm_openssl *openssl;
    const char *host;
    uint64_t now_ns;
    struct lm_tls_writer writer;
};

/* ---- life ---- */

int lm_load_tls_open(struct lm_load_tls **tls_out, const lumen_load_config *config) {
    const struct lm_tls_trust systems = {.source = "the system's authorities"};
    *tls_out = NULL;
    if (!config->tls_host) return 0;
    struct lm_load_tls *tls = calloc(1, sizeof *tls);
    if (!tls) return lm_error(LUMEN_E_NOMEM, "no memory for TLS");
    const int code = lm_tls_client_open(&tls->client, &systems, NULL);
    if (code) {
        lm_load_tls_close(tls);
        return code;
    }
    tls->openssl = tls->client->openssl;
    tls->host = config->tls_host;
    *tls_out = tls;
    return 0;
}

void lm_load_tls_close(struct lm_load_tls *tls) {
    if (!tls) return;
    lm_tls_client_close(tls->client);
    free(tls);
}

void lm_load_tls_end(struct lm_load_tls *tls, struct lm_load_connection *connection) {
    if (!tls) return;
    lm_tls_session_close(tls->openssl, connection->session);
    connection->session = NULL;
}

/* ---- handshakes ---- */

int lm_load_tls_greet(struct lm_load_tls *tls, struct lm_load_connection *connection) {
    char why[256];
    if (!connection->session) {
        connection->session = lm_tls_client_begin(tls->client, connection->fd, tls->host, NULL);
        if (!connection->session) return lm_error(LUMEN_E_NOMEM, "no memory for TLS");
        connection->session->now_ns = &tls->now_ns;
    }
    switch (lm_tls_client_greet(tls->client, connection->session, tls->host, why, sizeof why)) {
    case LM_TLS_GREETED: return 0;
    case LM_TLS_WAITS: return LM_LOAD_TLS_WAITS;
    case LM_TLS_REFUSED: break;
    }
    return lm_error(LUMEN_E_IO, "%s", why);
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
