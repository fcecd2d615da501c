/* door.h: where clients who speak TLS come in: a listening socket, the certificates in force, and
 * the thread that greets them (handshakes.h).
 *
 * A handshake takes a third of a millisecond of a core, one with an RSA key a whole: on an I/O
 * thread each would delay all other clients. So one thread has the listening socket and carries
 * out the handshakes, as far as its clients let it, and gives each connection to an I/O thread when
 * it is greeted. It runs beside the pinned threads, with less weight than they have.
 *
 * Bounds: LM_TLS_HANDSHAKES_MAX at a time, of which the oldest makes room once it has had
 * LM_TLS_LEAST_MS; server.header_timeout_ms each; LM_TLS_GREETING_BYTES from a client, and as many
 * that are discarded of one that was told why it is refused.
 */
#ifndef LM_TLS_DOOR_H
#define LM_TLS_DOOR_H

#include <pthread.h>
#include <stdbool.h>

#include "base/atomics.h"
#include "base/memory.h"
#include "parts/address_table.h"
#include "parts/stats.h"
#include "tls/context.h"
#include "tls/sessions.h"

enum { LM_TLS_HANDSHAKES_MAX = 1024, LM_TLS_LEAST_MS = 500 };
#define LM_TLS_NO_PLACE UINT32_MAX

/* Events of epoll that belong to no place: the listening socket, and the control thread. */
enum { LM_TLS_OF_LISTENER = LM_TLS_HANDSHAKES_MAX, LM_TLS_OF_CONTROL };

/* A handshake under way. */
struct lm_tls_handshake {
    struct lm_tls_session *session; /* NULL: the place is free */
    struct lm_tls_context *context;
    uint64_t began_ns;
    uint32_t prev, next; /* in the order of time, or the next free place */
    bool is_known;       /* its first byte is TLS's */
    bool wants_to_write;
    bool is_told; /* it failed, and the client was told why: what it still sends is discarded */
    uint32_t discarded_bytes;
};

struct lm_tls_door {
    const struct lm_openssl *openssl;
    /* struct lm_tls_context *: the next one, from the control thread; 0: none. */
    lm_atomic_u64 offered;
    lm_atomic_u32 stopping;
    struct lm_tls_context *context; /* in force; the retired ones behind it */
    struct lm_tls_handshake places[LM_TLS_HANDSHAKES_MAX];
    uint32_t oldest, newest, free, used, count;
    bool listens; /* the listening socket is waited for */
    int listen_fd, epoll_fd, event_fd;
    uint64_t timeout_ns;              /* of a handshake; 0: none */
    struct lm_tls_sessions *sessions; /* of greeted connections, and of others */
    struct lm_address_table *addresses;
    /* The figures of the first I/O thread's block that this thread alone writes. */
    struct lm_io_counters *counters;
    /* Takes a greeted connection for an I/O thread; false: it cannot. */
    bool (*deliver)(void *owner, uint32_t fd);
    void *owner;
    uint32_t delivered; /* by `deliver`, to take turns */
    pthread_t thread;
    bool thread_started;
    pthread_mutex_t news_lock; /* of what follows: this thread and the control thread */
    char news[160];            /* why the last handshake failed */
    uint64_t news_count;       /* that failed and were not told */
};

/* Takes the listening socket and the context. Returns 0 or LUMEN_E_*. */
int lm_tls_door_open(struct lm_tls_door **door_out, struct lm_tls_context *take_context,
                     struct lm_tls_sessions *sessions);
/* Other certificates, from the next handshake on. Control thread. */
void lm_tls_door_offer(struct lm_tls_door *door, struct lm_tls_context *take_context);
/* No more clients: those that are being greeted are sent away. Returns at once; NULL is allowed. */
void lm_tls_door_stop(struct lm_tls_door *door);
/* Waits for its end. */
void lm_tls_door_join(struct lm_tls_door *door);
/* No I/O thread runs any more. */
void lm_tls_door_close(struct lm_tls_door *door);
/* Says how many handshakes failed since the last call, and why the last one did. false: none. */
bool lm_tls_door_news(struct lm_tls_door *door, char *text, size_t bytes);

#endif
