/* test_accept.c: a listener whose accept fails rests, and the others go on; a client that was
 * greeted and finds no room leaves nothing behind. The ring's call is the test's own, so that it
 * sees which listener is armed and when, and so is the end of a TLS session.
 */
#include <errno.h>
#include <fcntl.h>

#include "check.h"
#include "flow/accept.h"
#include "flow/tls.h"

static uint32_t armed[LM_LISTENERS]; /* how often */

static void arm(struct lm_ring *ring, uint32_t listener, int listen_fd) {
    (void)ring;
    CHECK(listen_fd == 100 + (int)listener);
    armed[listener]++;
}

static const struct lm_tls_session *closed;

static void close_session(const struct lm_openssl *openssl, struct lm_tls_session *session) {
    (void)openssl;
    closed = session;
}

/* The file itself, which calls these. */
#define lm_ring_accept arm
#define lm_tls_session_close close_session
#include "flow/accept.c"

static struct lm_io thread = {.now_ns = 1000000000};

static void fails(uint32_t listener, int error) {
    struct lm_completion failed = {.op = LM_OP_ACCEPT, .index = listener, .result = -error};
    lm_accept_completed(&thread, &failed);
}

static void are_armed(uint32_t tcp, uint32_t from_unix) {
    CHECK(armed[LM_LISTENER_TCP] == tcp && armed[LM_LISTENER_UNIX] == from_unix);
}

/* A client that finds no room gives back its place among those of its address. */
static void greeted_without_room(void) {
    static struct lm_shared shared;
    static struct lm_stats_block stats;
    static lm_atomic_u64 entries[1024];
    static struct lm_tls_session session;
    const struct sockaddr_storage client = {.ss_family = AF_INET};
    struct lm_tls_sessions sessions = {.entries = entries};
    struct lm_tls_side side = {.open = 2};
    struct lm_io full = {.shared = &shared, .stats = &stats, .tls = &side, .unparked_max = 2};
    shared.sessions = &sessions;
    CHECK(lm_address_table_open(&shared.addresses, 1, 4) == 0);
    for (uint64_t n = 1; n <= 2; n++) {
        CHECK_AT("client %llu", (unsigned long long)n);
        const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && fd < 1024);
        CHECK(lm_address_table_add(&shared.addresses, &client, &session.address));
        lm_tls_session_put(&sessions, fd, &session);
        closed = NULL;
        lm_accept_greeted(&full, fd);
        CHECK(closed == &session && !lm_tls_session_at(&sessions, fd) && side.open == 2);
        CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
        CHECK(lm_load_relaxed_u64(&stats.io.connections_refused) == n);
    }
    lm_address_table_close(&shared.addresses);
}

int main(void) {
    greeted_without_room();
    CHECK_AT("listeners");
    for (uint32_t l = 0; l < LM_LISTENERS; l++) thread.listen_fds[l] = 100 + (int)l;
    thread.listen_fds[LM_LISTENER_GRPC] = -1; /* there is none */
    lm_accept_arm(&thread);
    are_armed(1, 1);
    lm_accept_arm(&thread);
    are_armed(1, 1); /* both are, and no listener twice */
    fails(LM_LISTENER_TCP, EMFILE);
    CHECK(thread.accepts_armed == 1u << LM_LISTENER_UNIX);
    thread.now_ns += LM_ACCEPT_PAUSE_MS * 1000000ull - 1;
    lm_accept_arm(&thread);
    are_armed(1, 1); /* it rests */
    thread.now_ns++;
    lm_accept_arm(&thread);
    are_armed(2, 1); /* the other one accepts all the time */
    fails(LM_LISTENER_UNIX, ENFILE);
    CHECK(thread.accepts_armed == 1u << LM_LISTENER_TCP && thread.accept_retry_ns > thread.now_ns);
    fails(LM_LISTENER_TCP, ENOMEM); /* now neither does */
    CHECK(thread.accepts_armed == 0);
    thread.now_ns = thread.accept_retry_ns;
    lm_accept_arm(&thread);
    are_armed(3, 2);
    fails(LM_LISTENER_UNIX, ECONNABORTED); /* its client's fault: no reason to rest */
    are_armed(3, 3);
    fails(LM_LISTENER_TCP, EINTR);
    are_armed(4, 3);
    thread.listen_fds[LM_LISTENER_TCP] = -1;
    fails(LM_LISTENER_TCP, ECANCELED); /* closed: it is not armed again */
    are_armed(4, 3);
    thread.draining = true;
    fails(LM_LISTENER_UNIX, ECANCELED);
    are_armed(4, 3);
    CHECK(thread.accepts_armed == 0);
    return check_finish("test_accept");
}
