/* ring_check.c: tries a ring on a loop-back connection before a server relies on it. Runs on the
 * ring's thread, once, at start; takes a few hundred microseconds.
 *
 * A kernel may set everything up and still do the wrong thing: vendors backport, sandboxes emulate.
 * What is tried is what the server does: accept, a header into a provided buffer, a body that comes
 * in two pieces, a send, the end of a stream, and a cancelled accept.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "ring/ring_backend.h"

enum { LISTENER = 0, INDEX = 0, GENERATION = 0x5ca1ab, PIECE_BYTES = 16, BODY_BYTES = 32 };

_Static_assert((int)BODY_BYTES <= LM_CACHE_LINE, "the body has a cache line's room");

/* The generation must differ from that of the index's first owner, or epoll would take that for the
 * same connection. Owners count from 0. */
_Static_assert(GENERATION <= 0xffffff && GENERATION > 0, "a generation has 24 bits");

struct loop {
    int listener, client, server;
    struct sockaddr_in client_address;
};

static void close_loop(struct loop *loop) {
    /* Reset, so that no TIME_WAIT stays behind. */
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (loop->client >= 0) {
        setsockopt(loop->client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(loop->client);
    }
    if (loop->server >= 0) close(loop->server);
    if (loop->listener >= 0) close(loop->listener);
}

/* A connection whose far end waits to be accepted. false: this machine has no such thing. */
static bool open_loop(struct loop *loop) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const struct timeval patience = {.tv_usec = 200000}; /* for a firewall that drops */
    loop->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    loop->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (loop->listener < 0 || loop->client < 0) return false;
    setsockopt(loop->client, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (bind(loop->listener, (struct sockaddr *)&address, bytes) != 0 ||
        listen(loop->listener, 1) != 0 ||
        getsockname(loop->listener, (struct sockaddr *)&address, &bytes) != 0 ||
        connect(loop->client, (struct sockaddr *)&address, bytes) != 0) {
        return false;
    }
    bytes = sizeof loop->client_address;
    return getsockname(loop->client, (struct sockaddr *)&loop->client_address, &bytes) == 0;
}

static int fault(const char *what, int expected, int found) {
    return lm_error(LUMEN_E_UNSUPPORTED,
                    "io_uring was set up, but does not work here: %s: expected %d, found %d", what,
                    expected, found);
}

/* Waits for the next completion of `op`; others but wake-ups are faults. */
static int await(struct lm_ring *ring, enum lm_op op, const char *what,
                 struct lm_completion *found) {
    uint64_t until = lm_now_ns() + LM_SELF_TEST_MS * 1000000ull;
    for (uint64_t now = lm_now_ns(); now < until; now = lm_now_ns()) {
        int count = lm_ring_wait(ring, 0, until - now, found, 1);
        if (count < 0) return fault(what, 0, count);
        if (count == 0 || found->op == LM_OP_WAKE || found->op == LM_OP_CANCEL) continue;
        if (found->op != op) return fault(what, (int)op, (int)found->op);
        bool ours =
            op == LM_OP_ACCEPT || (found->index == INDEX && found->generation == GENERATION);
        return ours ? 0 : fault(what, GENERATION, (int)found->generation);
    }
    return lm_error(LUMEN_E_UNSUPPORTED,
                    "io_uring was set up, but does not work here: %s did not complete in %d ms",
                    what, LM_SELF_TEST_MS);
}

static int check_accept(struct lm_ring *ring, struct loop *loop) {
    struct lm_completion found;
    struct sockaddr_in peer;
    socklen_t bytes = sizeof peer;
    lm_ring_accept(ring, LISTENER, loop->listener);
    int code = await(ring, LM_OP_ACCEPT, "accept", &found);
    if (code) return code;
    if (found.result < 0) return fault("accept", 0, found.result);
    loop->server = found.result;
    if (getpeername(loop->server, (struct sockaddr *)&peer, &bytes) != 0 ||
        peer.sin_port != loop->client_address.sin_port) {
        loop->server = -1; /* somebody else's, if anybody's */
        return fault("the accepted descriptor", found.result, -1);
    }
    lm_ring_cancel_accept(ring, LISTENER);
    if (!found.more) return 0;
    code = await(ring, LM_OP_ACCEPT, "the end of accepting", &found);
    if (!code && found.more) code = fault("the end of accepting", 0, 1);
    return code;
}

/* What the client sends arrives in a provided buffer. */
static int check_header(struct lm_ring *ring, const struct loop *loop, const uint8_t *piece) {
    struct lm_completion found;
    lm_ring_recv_header(ring, loop->server, INDEX, GENERATION);
    if (send(loop->client, piece, PIECE_BYTES, MSG_NOSIGNAL) != PIECE_BYTES)
        return fault("the loop-back connection", PIECE_BYTES, -errno);
    int code = await(ring, LM_OP_RECV_HEADER, "a receive into a provided buffer", &found);
    if (code) return code;
    if (found.result != PIECE_BYTES || found.buffer < 0 || found.buffer >= LM_HEADER_BUFFERS)
        return fault("a receive into a provided buffer", PIECE_BYTES, found.result);
    bool same = memcmp(lm_ring_buffer(ring, found.buffer), piece, PIECE_BYTES) == 0;
    lm_ring_buffer_return(ring, found.buffer);
    return same ? 0 : fault("the bytes in a provided buffer", 1, 0);
}

/* A receive goes on until all is there; then a send, and the stream's end. */
static int check_body(struct lm_ring *ring, const struct loop *loop, const uint8_t *piece) {
    struct lm_completion found;
    /* Behind the header buffers: not on the stack, should a broken kernel write to it later. */
    uint8_t *body = lm_ring_buffer(ring, LM_HEADER_BUFFERS);
    struct iovec part = {.iov_base = body, .iov_len = BODY_BYTES};
    const struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    lm_ring_recv(ring, loop->server, body, BODY_BYTES, INDEX, GENERATION);
    if (send(loop->client, piece, PIECE_BYTES, MSG_NOSIGNAL) != PIECE_BYTES)
        return fault("the loop-back connection", PIECE_BYTES, -errno);
    int early = lm_ring_wait(ring, 0, 0, &found, 1); /* the half must not complete it */
    if (early != 0 && found.op != LM_OP_CANCEL) return fault("a receive of two pieces", 0, early);
    if (send(loop->client, piece, PIECE_BYTES, MSG_NOSIGNAL) != PIECE_BYTES)
        return fault("the loop-back connection", PIECE_BYTES, -errno);
    int code = await(ring, LM_OP_RECV, "a receive of two pieces", &found);
    if (code) return code;
    if (found.result != BODY_BYTES || memcmp(body + PIECE_BYTES, piece, PIECE_BYTES) != 0)
        return fault("a receive of two pieces", BODY_BYTES, found.result);
    lm_ring_send(ring, loop->server, &message, INDEX, GENERATION);
    code = await(ring, LM_OP_SEND, "a send", &found);
    if (code) return code;
    if (found.result != BODY_BYTES) return fault("a send", BODY_BYTES, found.result);
    lm_ring_recv_header(ring, loop->server, INDEX, GENERATION);
    shutdown(loop->client, SHUT_WR);
    code = await(ring, LM_OP_RECV_HEADER, "the end of a stream", &found);
    if (!code && found.buffer != LM_NO_BUFFER) lm_ring_buffer_return(ring, found.buffer);
    if (!code && found.result != 0) code = fault("the end of a stream", 0, found.result);
    return code;
}

int lm_ring_check(struct lm_ring *ring) {
    static const uint8_t piece[PIECE_BYTES] = "Is it so, lumen";
    struct loop loop = {.listener = -1, .client = -1, .server = -1};
    int code = open_loop(&loop) ? 0 : LUMEN_E_AGAIN;
    if (!code) code = check_accept(ring, &loop);
    if (!code) code = check_header(ring, &loop, piece);
    if (!code) code = check_body(ring, &loop, piece);
    close_loop(&loop);
    return code;
}
