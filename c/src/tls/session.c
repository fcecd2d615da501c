/* session.c: see session.h. */
#include "tls/session.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- the socket, as OpenSSL sees it ---- */

static const struct lm_openssl *openssl_of_bio; /* set before the first of them is made */
static BIO_METHOD *socket_method;

static int retry_later(BIO *bio, int direction) {
    openssl_of_bio->BIO_set_flags(bio, direction | LM_BIO_FLAGS_SHOULD_RETRY);
    return -1;
}

static void clear_retry(BIO *bio) {
    openssl_of_bio->BIO_clear_flags(bio, LM_BIO_FLAGS_READ | LM_BIO_FLAGS_WRITE |
                                             LM_BIO_FLAGS_SHOULD_RETRY);
}

static int socket_read(BIO *bio, char *bytes, int count) {
    struct lm_tls_session *session = openssl_of_bio->BIO_get_data(bio);
    ssize_t got;
    clear_retry(bio);
    if (session->received_bytes >= session->received_max) session->is_broken = true;
    if (session->is_broken) return -1;
    do {
        got = recv(session->fd, bytes, (size_t)count, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return retry_later(bio, LM_BIO_FLAGS_READ);
    if (got == 0 && session->read_shut) {
        session->has_ended = true; /* which is no fault of the client's */
        return retry_later(bio, LM_BIO_FLAGS_READ);
    }
    if (got > 0) session->received_bytes += (uint64_t)got;
    return (int)got;
}

/* Into the batch that is gathered; otherwise what OpenSSL has to say by itself, unless that would
 * overtake records that wait. */
static int socket_write(BIO *bio, const char *bytes, int count) {
    struct lm_tls_session *session = openssl_of_bio->BIO_get_data(bio);
    struct lm_tls_writer *writer = session->writer;
    ssize_t sent;
    clear_retry(bio);
    if (writer) {
        if ((size_t)count > sizeof writer->sealed - writer->sealed_bytes)
            return retry_later(bio, LM_BIO_FLAGS_WRITE);
        memcpy(writer->sealed + writer->sealed_bytes, bytes, (size_t)count);
        writer->sealed_bytes += (size_t)count;
        return count;
    }
    if (session->rest) return retry_later(bio, LM_BIO_FLAGS_WRITE);
    do {
        sent = send(session->fd, bytes, (size_t)count, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return retry_later(bio, LM_BIO_FLAGS_WRITE);
    return (int)sent;
}

static long socket_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == LM_BIO_CTRL_FLUSH;
}

static void make_method(void) {
    openssl_of_bio = lm_openssl();
    if (!openssl_of_bio) return;
    socket_method = openssl_of_bio->BIO_meth_new(LM_BIO_TYPE_SOURCE_SINK, "lumen");
    if (!socket_method) return;
    openssl_of_bio->BIO_meth_set_read(socket_method, socket_read);
    openssl_of_bio->BIO_meth_set_write(socket_method, socket_write);
    openssl_of_bio->BIO_meth_set_ctrl(socket_method, socket_control);
}

/* ---- life ---- */

void lm_tls_set_modes(const struct lm_openssl *openssl, SSL_CTX *context) {
    (void)openssl->SSL_CTX_ctrl(context, LM_SSL_CTRL_MODE,
                                LM_SSL_MODE_ENABLE_PARTIAL_WRITE |
                                    LM_SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                    LM_SSL_MODE_RELEASE_BUFFERS,
                                NULL);
    (void)openssl->SSL_CTX_ctrl(context, LM_SSL_CTRL_SET_READ_AHEAD, 1, NULL);
}

struct lm_tls_session *lm_tls_session_open(const struct lm_openssl *openssl, SSL_CTX *context,
                                           int fd) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_method);
    struct lm_tls_session *session = calloc(1, sizeof *session);
    SSL *ssl = session && socket_method ? openssl->SSL_new(context) : NULL;
    BIO *bio = ssl ? openssl->BIO_new(socket_method) : NULL;
    if (!bio) {
        openssl->SSL_free(ssl);
        free(session);
        return NULL;
    }
    session->ssl = ssl;
    session->fd = fd;
    session->received_max = 2 * LM_TLS_GREETING_BYTES;
    openssl->BIO_set_data(bio, session);
    openssl->BIO_set_init(bio, 1);
    openssl->SSL_set_bio(ssl, bio, bio);
    openssl->SSL_set_accept_state(ssl);
    (void)openssl->SSL_ctrl(ssl, LM_SSL_CTRL_SET_MSG_CALLBACK_ARG, 0, session);
    return session;
}

void lm_tls_session_close(const struct lm_openssl *openssl, struct lm_tls_session *session) {
    if (!session) return;
    openssl->SSL_free(session->ssl);
    openssl->ERR_clear_error();
    free(session->rest);
    free(session);
}

/* ---- reading ---- */

/* OpenSSL reads such messages, and answers them, until content comes: a client that sends nothing
 * else must not keep the thread in there. */
void lm_tls_see_message(int is_written, int version, int type, const void *bytes, size_t count,
                        SSL *ssl, void *argument) {
    struct lm_tls_session *session = argument;
    (void)version, (void)ssl;
    (void)bytes, (void)count;
    if (is_written || type != LM_SSL3_RT_HANDSHAKE || !session || !session->now_ns) return;
    if (*session->now_ns >= session->second_ns + 1000000000ull) {
        session->second_ns = *session->now_ns;
        session->messages = 0;
    }
    if (++session->messages > LM_TLS_MESSAGES_PER_SECOND) session->is_broken = true;
}

static ssize_t fail(const struct lm_openssl *openssl, struct lm_tls_session *session, int number) {
    openssl->ERR_clear_error();
    session->is_broken = true;
    errno = number;
    return -1;
}

ssize_t lm_tls_read(const struct lm_openssl *openssl, struct lm_tls_session *session, void *memory,
                    size_t bytes) {
    if (session->is_broken) return fail(openssl, session, EPROTO);
    const int most = bytes < INT_MAX ? (int)bytes : INT_MAX;
    session->received_max = session->received_bytes + LM_TLS_READ_BYTES_MAX;
    const int got = openssl->SSL_read(session->ssl, memory, most);
    if (session->is_broken) return fail(openssl, session, EPROTO);
    if (got > 0) {
        session->may_read = openssl->SSL_has_pending(session->ssl);
        session->partial_ns = 0;
        return got;
    }
    session->may_read = false;
    const int error = openssl->SSL_get_error(session->ssl, got);
    if (error == LM_SSL_ERROR_ZERO_RETURN) return 0;
    /* An answer to a change of keys: behind records that wait; a client that reads nothing changes
     * nothing. */
    const bool is_behind = error == LM_SSL_ERROR_WANT_WRITE && session->rest;
    if (error != LM_SSL_ERROR_WANT_READ && !is_behind) /* also an end that was not said */
        return fail(openssl, session, ECONNRESET);
    if (session->has_ended && !is_behind) return 0;
    if (is_behind) session->may_read = session->waits_for_rest = true;
    if (!openssl->SSL_has_pending(session->ssl)) {
        session->partial_ns = 0;
    } else if (!session->partial_ns) {
        session->partial_ns = *session->now_ns;
    }
    errno = EAGAIN;
    return -1;
}

size_t lm_tls_buffered(const struct lm_openssl *openssl, const struct lm_tls_session *session) {
    return openssl->SSL_has_pending(session->ssl) ? LM_TLS_SEALED_BYTES : 0;
}

/* ---- writing ---- */

/* The next record's content: where it lies, or gathered of small parts. `part` and `at` go on
 * behind it. */
static size_t next_record(struct lm_tls_writer *writer, const struct msghdr *message, size_t *part,
                          size_t *at, const uint8_t **content_out) {
    size_t used = 0;
    while (*part < message->msg_iovlen && used < LM_TLS_RECORD_BYTES) {
        const struct iovec *from = &message->msg_iov[*part];
        const size_t left = from->iov_len - *at;
        const uint8_t *bytes = (const uint8_t *)from->iov_base + *at;
        if (used == 0 && left >= LM_TLS_RECORD_BYTES) {
            *at += LM_TLS_RECORD_BYTES;
            *content_out = bytes;
            return LM_TLS_RECORD_BYTES;
        }
        const size_t taken = left < LM_TLS_RECORD_BYTES - used ? left : LM_TLS_RECORD_BYTES - used;
        if (taken) memcpy(writer->gathered + used, bytes, taken);
        used += taken;
        *at += taken;
        if (*at == from->iov_len) {
            (*part)++;
            *at = 0;
        }
    }
    *content_out = writer->gathered;
    return used;
}

/* Seals as many records as a batch has room for. Returns the bytes of their content; -1: OpenSSL
 * says no. */
static ssize_t seal(const struct lm_openssl *openssl, struct lm_tls_session *session,
                    struct lm_tls_writer *writer, const struct msghdr *message) {
    size_t taken = 0, part = 0, at = 0;
    writer->sealed_bytes = 0;
    session->writer = writer;
    while (sizeof writer->sealed - writer->sealed_bytes >= LM_TLS_SEALED_BYTES) {
        const uint8_t *content;
        const size_t bytes = next_record(writer, message, &part, &at, &content);
        if (bytes == 0) break;
        for (size_t done = 0; done < bytes;) { /* a record each, shorter ones for some clients */
            const int sealed =
                openssl->SSL_write(session->ssl, content + done, (int)(bytes - done));
            if (sealed <= 0) {
                session->writer = NULL;
                return -1;
            }
            done += (size_t)sealed;
        }
        taken += bytes;
    }
    session->writer = NULL;
    return (ssize_t)taken;
}

/* Sends the batch. false: the socket is broken, or there is no memory for what it does not take. */
static bool send_batch(struct lm_tls_session *session, const struct lm_tls_writer *writer) {
    ssize_t sent;
    do {
        sent = send(session->fd, writer->sealed, writer->sealed_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) return false;
    const size_t done = sent > 0 ? (size_t)sent : 0, left = writer->sealed_bytes - done;
    if (left == 0) return true;
    session->rest = malloc(left);
    if (!session->rest) return false;
    memcpy(session->rest, writer->sealed + done, left);
    session->rest_part = (struct iovec){session->rest, left};
    session->rest_message = (struct msghdr){.msg_iov = &session->rest_part, .msg_iovlen = 1};
    return true;
}

ssize_t lm_tls_write(const struct lm_openssl *openssl, struct lm_tls_session *session,
                     struct lm_tls_writer *writer, const struct msghdr *message) {
    if (session->is_broken) return fail(openssl, session, EPIPE);
    if (session->rest) {
        errno = EAGAIN;
        return -1;
    }
    const ssize_t taken = seal(openssl, session, writer, message);
    if (taken < 0 || (taken > 0 && !send_batch(session, writer)))
        return fail(openssl, session, EPIPE);
    return taken;
}

bool lm_tls_rest_sent(struct lm_tls_session *session, size_t bytes) {
    LM_ASSERT(session->rest && bytes <= session->rest_part.iov_len);
    session->rest_part.iov_base = (uint8_t *)session->rest_part.iov_base + bytes;
    session->rest_part.iov_len -= bytes;
    if (session->rest_part.iov_len > 0) return false;
    lm_tls_rest_drop(session);
    return true;
}

void lm_tls_rest_drop(struct lm_tls_session *session) {
    free(session->rest);
    session->rest = NULL;
}

void lm_tls_say_end(const struct lm_openssl *openssl, struct lm_tls_session *session) {
    if (session->is_broken || session->rest) return;
    (void)openssl->SSL_shutdown(session->ssl);
    openssl->ERR_clear_error();
}
