/* session.h: one connection's TLS: its records become bytes, and bytes records.
 *
 * Made by the thread of the handshakes, which gives it to an I/O thread; from then on that thread
 * alone uses it. The socket stays blocking, as the ring wants it: what is read and written here
 * never waits.
 */
#ifndef LM_TLS_SESSION_H
#define LM_TLS_SESSION_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "tls/openssl.h"

enum {
    LM_TLS_RECORD_BYTES = 16384, /* of a record's content, at most */
    /* The same as it is sent: in records of 512 bytes, where the client asks for such. */
    LM_TLS_SEALED_BYTES = LM_TLS_RECORD_BYTES + 32 * 32 + 256,
    LM_TLS_BATCH_BYTES = 4 * LM_TLS_SEALED_BYTES, /* that are sent in one call */
    LM_TLS_SUBJECT_BYTES = 32,
    LM_TLS_MESSAGES_PER_SECOND = 100, /* behind the handshake: changes of keys, and the like */
    LM_TLS_READ_BYTES_MAX = 64 << 10, /* of the socket for one call: a record needs fewer */
    LM_TLS_GREETING_BYTES = 128 << 10
};

/* Buffers of an I/O thread for writing records, shared by all its connections. */
struct lm_tls_writer {
    uint8_t gathered[LM_TLS_RECORD_BYTES]; /* small parts that go into one record */
    uint8_t sealed[LM_TLS_BATCH_BYTES];
    size_t sealed_bytes;
};

/* A receive that was started. */
struct lm_tls_wish {
    bool is_open;
    bool wants_page; /* into a buffer that is looked for; otherwise into memory */
    void *memory;
    size_t bytes;
};

struct lm_tls_session {
    SSL *ssl;
    int fd;
    uint32_t address;        /* that it counts for (parts/address_table.h) */
    uint64_t received_bytes; /* as they come from the socket */
    uint64_t received_max;   /* beyond it the connection is broken */
    uint64_t partial_ns;     /* since when a record is there in part; 0: none is */
    bool may_read;       /* bytes may be in OpenSSL's buffer: the socket does not tell of them */
    bool is_polled;      /* the ring says when the socket has something */
    bool waits_for_rest; /* what comes has to be answered, behind `rest` */
    bool read_shut;      /* by this side */
    bool has_ended;      /* so the end of the stream has come */
    bool is_broken;      /* nothing more can be read or written */
    bool has_subject;
    uint8_t subject[LM_TLS_SUBJECT_BYTES]; /* the SHA-256 of the client certificate's name */
    uint32_t messages;                     /* of handshakes, in this second: */
    uint64_t second_ns;
    const uint64_t *now_ns;       /* the I/O thread's clock */
    struct lm_tls_writer *writer; /* while records are gathered */
    /* Records that the socket did not take at once: the ring sends them. NULL: there are none. */
    uint8_t *rest;
    struct iovec rest_part;
    struct msghdr rest_message;
    uint64_t blocked_ns; /* since when they wait */
    struct lm_tls_wish wish;
    /* A message that is to be sent whole; NULL: none is. */
    const struct msghdr *message;
};

/* How a session reads and writes: of each context, a server's or a client's. */
void lm_tls_set_modes(const struct lm_openssl *openssl, SSL_CTX *context);
/* For a socket whose handshake begins, as a server's. NULL: there is no memory. */
struct lm_tls_session *lm_tls_session_open(const struct lm_openssl *openssl, SSL_CTX *context,
                                           int fd);
/* NULL is allowed. The socket stays open. */
void lm_tls_session_close(const struct lm_openssl *openssl, struct lm_tls_session *session);

/* Bytes of the client, at most `bytes`: how many; 0: it has said that it sends no more; -1 with
 * errno EAGAIN: there are none now, or another: the connection is broken. */
ssize_t lm_tls_read(const struct lm_openssl *openssl, struct lm_tls_session *session, void *memory,
                    size_t bytes);
/* Sends a batch of a message's bytes. Returns how many it took, of which some may wait in `rest`
 * for the ring; or -1 with errno, EAGAIN while a rest is there. */
ssize_t lm_tls_write(const struct lm_openssl *openssl, struct lm_tls_session *session,
                     struct lm_tls_writer *writer, const struct msghdr *message);
/* The ring has sent so much of the rest. true: all of it. */
bool lm_tls_rest_sent(struct lm_tls_session *session, size_t bytes);
/* The rest will not be sent: frees it. */
void lm_tls_rest_drop(struct lm_tls_session *session);
/* Tells the client that no more follows, where the socket takes that at once. */
void lm_tls_say_end(const struct lm_openssl *openssl, struct lm_tls_session *session);
/* Bytes that may be in OpenSSL's buffer, at most. */
size_t lm_tls_buffered(const struct lm_openssl *openssl, const struct lm_tls_session *session);

/* Counts the messages behind a handshake: of each context. */
void lm_tls_see_message(int is_written, int version, int type, const void *bytes, size_t count,
                        SSL *ssl, void *argument);

#endif
