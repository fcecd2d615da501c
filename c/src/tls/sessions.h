/* sessions.h: each connection's TLS session, by its descriptor: of clients that were greeted, and
 * of connections to upstreams. The I/O thread that has a connection uses its entry alone. A
 * descriptor may go from one thread to another through the kernel alone, so the entries are atomic.
 */
#ifndef LM_TLS_SESSIONS_H
#define LM_TLS_SESSIONS_H

#include "base/atomics.h"
#include "base/memory.h"
#include "tls/session.h"

enum { LM_TLS_DESCRIPTORS_MAX = 2 << 20 };

struct lm_tls_sessions {
    const struct lm_openssl *openssl;
    struct lm_mapping memory; /* untouched entries cost nothing */
    lm_atomic_u64 *entries;
};

/* Control thread. Returns 0, LUMEN_E_UNSUPPORTED where there is no OpenSSL, or LUMEN_E_NOMEM. */
int lm_tls_sessions_open(struct lm_tls_sessions **sessions_out);
void lm_tls_sessions_close(struct lm_tls_sessions *sessions); /* NULL is allowed */

/* The thread that has the connection; NULL: it has no session. */
static inline struct lm_tls_session *lm_tls_session_at(const struct lm_tls_sessions *sessions,
                                                       int fd) {
    /* relaxed: the ring of descriptors shows what it points to */
    return (struct lm_tls_session *)(uintptr_t)lm_load_relaxed_u64(&sessions->entries[fd]);
}
static inline void lm_tls_session_put(struct lm_tls_sessions *sessions, int fd,
                                      const struct lm_tls_session *session) {
    /* relaxed: the same; and whoever had the descriptor before has closed it */
    lm_store_relaxed_u64(&sessions->entries[fd], (uint64_t)(uintptr_t)session);
}

#endif
