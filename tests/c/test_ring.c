/* test_ring.c: what ring.h promises, of io_uring, of io_uring with features hidden, and of epoll:
 * the flow above cannot tell them apart, and neither does this test. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "ring/ring_backend.h"
#include "ring_peer.h"

enum { CONNECTIONS = 64, BODY_BYTES = 3 << 20, SEND_BYTES = 400000 };

static uint8_t pattern(size_t at) {
    return (uint8_t)(at * 31 + (at >> 8));
}

/* ---- accepting ---- */

static int accepted(struct lm_ring *ring) {
    struct lm_completion found = peer_next(ring, LM_OP_ACCEPT, 0, 0);
    CHECK(found.result >= 0 && found.more);
    return found.result;
}

/* F7: accepting goes on by itself, and ends once. */
static void check_accept(struct lm_ring *ring) {
    struct sockaddr_in address;
    int listener = peer_listener(&address);
    lm_ring_accept(ring, 0, listener);
    peer_quiet(ring);
    for (int round = 0; round < 3; round++) {
        int theirs[8];
        for (int i = 0; i < 8; i++) theirs[i] = peer_connect(&address);
        for (int i = 0; i < 8; i++) {
            int ours = accepted(ring);
            CHECK(fcntl(ours, F_GETFD) & FD_CLOEXEC);
            close(ours);
        }
        for (int i = 0; i < 8; i++) close(theirs[i]);
    }
    peer_quiet(ring);
    lm_ring_cancel_accept(ring, 0);
    bool cancelled = false, ended = false;
    while (!cancelled || !ended) {
        struct lm_completion found;
        if (lm_ring_wait(ring, 0, UINT64_MAX, &found, 1) == 0) continue;
        CHECK(found.op == LM_OP_ACCEPT || found.op == LM_OP_CANCEL);
        if (found.op == LM_OP_ACCEPT) CHECK(found.result == -ECANCELED && !found.more);
        ended = ended || found.op == LM_OP_ACCEPT;
        cancelled = cancelled || found.op == LM_OP_CANCEL;
    }
    /* Not accepted any more; then it is, by the same listener and by another. */
    int theirs = peer_connect(&address);
    peer_quiet(ring);
    lm_ring_accept(ring, 0, listener);
    close(accepted(ring));
    close(theirs);
    lm_ring_cancel_accept(ring, 0);
    close(listener);
    struct lm_completion found;
    /* Looking for completions ends with the timeout, as sleeping does. */
    const uint64_t year_ns = 365ull * 24 * 3600 * 1000000000ull;
    while (lm_ring_wait(ring, year_ns, 1000000, &found, 1) > 0) CHECK(!found.more);
    listener = peer_listener(&address);
    lm_ring_accept(ring, 0, listener);
    theirs = peer_connect(&address);
    close(accepted(ring));
    close(theirs);
    lm_ring_cancel_accept(ring, 0);
    close(listener);
    while (lm_ring_wait(ring, 0, 1000000, &found, 1) > 0) CHECK(!found.more);
}

/* F10, out of descriptors: accepting ends, nothing spins, and it goes on when told to. */
static void check_descriptors(struct lm_ring *ring) {
    struct sockaddr_in address;
    struct rlimit before, tight;
    int listener = peer_listener(&address);
    int theirs = peer_connect(&address);
    int next = dup(theirs);
    CHECK(next >= 0 && close(next) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    tight = before;
    tight.rlim_cur = (rlim_t)next;
    CHECK(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    for (int i = 0; i < 2; i++) {
        lm_ring_accept(ring, 0, listener);
        struct lm_completion found = peer_next(ring, LM_OP_ACCEPT, 0, 0);
        CHECK(found.result == -EMFILE && !found.more);
        peer_quiet(ring);
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    lm_ring_accept(ring, 0, listener);
    close(accepted(ring));
    close(theirs);
    lm_ring_cancel_accept(ring, 0);
    close(listener);
    struct lm_completion found;
    while (lm_ring_wait(ring, 0, 1000000, &found, 1) > 0) CHECK(!found.more);
}

/* ---- two listeners, one of them on a unix socket ---- */

enum { TCP, UNIX, DOORS };

struct door {
    struct sockaddr_storage address;
    socklen_t bytes;
    int fd;
};

/* On an abstract address, which leaves no file. */
static void open_doors(struct door *doors) {
    doors[TCP].bytes = sizeof(struct sockaddr_in);
    doors[TCP].fd = peer_listener((struct sockaddr_in *)&doors[TCP].address);
    doors[UNIX].address = (struct sockaddr_storage){.ss_family = AF_UNIX};
    doors[UNIX].bytes = sizeof(sa_family_t);
    doors[UNIX].fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr *address = (struct sockaddr *)&doors[UNIX].address;
    CHECK(bind(doors[UNIX].fd, address, doors[UNIX].bytes) == 0);
    doors[UNIX].bytes = sizeof doors[UNIX].address;
    CHECK(getsockname(doors[UNIX].fd, address, &doors[UNIX].bytes) == 0);
    CHECK(listen(doors[UNIX].fd, 128) == 0);
}

static int knock(const struct door *door) {
    int fd = socket(door->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&door->address, door->bytes) == 0);
    return fd;
}

/* So many connections come, each from the listener that its number says. */
static void expect_accepted(struct lm_ring *ring, uint32_t tcp, uint32_t from_unix) {
    uint32_t left[DOORS] = {tcp, from_unix};
    while (left[TCP] + left[UNIX] > 0) {
        struct sockaddr_storage own;
        socklen_t bytes = sizeof own;
        struct lm_completion found;
        if (lm_ring_wait(ring, 0, UINT64_MAX, &found, 1) == 0) continue;
        CHECK(found.op == LM_OP_ACCEPT && found.index < DOORS && left[found.index] > 0);
        CHECK(found.result >= 0 && found.more);
        CHECK(getsockname(found.result, (struct sockaddr *)&own, &bytes) == 0);
        CHECK(own.ss_family == (found.index == UNIX ? AF_UNIX : AF_INET));
        left[found.index]--;
        close(found.result);
    }
}

static void expect_cancelled(struct lm_ring *ring, uint32_t listener) {
    bool cancelled = false, ended = false;
    while (!cancelled || !ended) {
        struct lm_completion found;
        if (lm_ring_wait(ring, 0, UINT64_MAX, &found, 1) == 0) continue;
        CHECK(found.op == LM_OP_ACCEPT || found.op == LM_OP_CANCEL);
        if (found.op == LM_OP_ACCEPT)
            CHECK(found.index == listener && found.result == -ECANCELED && !found.more);
        ended = ended || found.op == LM_OP_ACCEPT;
        cancelled = cancelled || found.op == LM_OP_CANCEL;
    }
}

static void check_listeners(struct lm_ring *ring) {
    struct door doors[DOORS];
    int theirs[16];
    open_doors(doors);
    lm_ring_accept(ring, TCP, doors[TCP].fd);
    lm_ring_accept(ring, UNIX, doors[UNIX].fd);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 16; i++) theirs[i] = knock(&doors[i % 3 == round ? TCP : UNIX]);
        uint32_t tcp = round == 0 ? 6 : 5;
        expect_accepted(ring, tcp, 16 - tcp);
        for (int i = 0; i < 16; i++) close(theirs[i]);
        peer_quiet(ring);
    }
    /* Each ends by itself, and the other goes on; then both again. */
    for (uint32_t l = 0; l < DOORS; l++) {
        lm_ring_cancel_accept(ring, l);
        expect_cancelled(ring, l);
        theirs[0] = knock(&doors[l]);
        peer_quiet(ring);
        theirs[1] = knock(&doors[1 - l]);
        expect_accepted(ring, l == UNIX, l == TCP);
        lm_ring_accept(ring, l, doors[l].fd);
        expect_accepted(ring, l == TCP, l == UNIX);
        close(theirs[0]);
        close(theirs[1]);
    }
    for (uint32_t l = 0; l < DOORS; l++) {
        lm_ring_cancel_accept(ring, l);
        close(doors[l].fd);
        expect_cancelled(ring, l);
    }
}

/* Out of descriptors, each listener says so, and each is armed again by itself. */
static void check_listeners_without_descriptors(struct lm_ring *ring) {
    struct door doors[DOORS];
    struct rlimit before, tight;
    int theirs[DOORS];
    open_doors(doors);
    for (uint32_t l = 0; l < DOORS; l++) theirs[l] = knock(&doors[l]);
    int next = dup(theirs[0]);
    CHECK(next >= 0 && close(next) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    tight = before;
    tight.rlim_cur = (rlim_t)next;
    CHECK(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    bool told[DOORS] = {false};
    for (uint32_t l = 0; l < DOORS; l++) lm_ring_accept(ring, l, doors[l].fd);
    while (!told[TCP] || !told[UNIX]) {
        struct lm_completion found;
        if (lm_ring_wait(ring, 0, UINT64_MAX, &found, 1) == 0) continue;
        CHECK(found.op == LM_OP_ACCEPT && found.index < DOORS && !told[found.index]);
        CHECK(found.result == -EMFILE && !found.more);
        told[found.index] = true;
    }
    peer_quiet(ring);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    for (uint32_t l = 0; l < DOORS; l++) {
        lm_ring_accept(ring, l, doors[l].fd);
        expect_accepted(ring, l == TCP, l == UNIX);
        lm_ring_cancel_accept(ring, l);
        close(doors[l].fd);
        expect_cancelled(ring, l);
        close(theirs[l]);
    }
}

/* A listener that cannot accept says so once, and the other one goes on. */
static void check_one_listener(struct lm_ring *ring) {
    struct door doors[DOORS];
    open_doors(doors);
    for (uint32_t l = 0; l < DOORS; l++) {
        uint32_t other = 1 - l;
        lm_ring_accept(ring, other, doors[other].fd);
        peer_quiet(ring);
        lm_ring_accept(ring, l, 1000000);
        struct lm_completion found = peer_next(ring, LM_OP_ACCEPT, l, 0);
        CHECK(found.result == -EBADF && !found.more);
        for (int i = 0; i < 3; i++) {
            int theirs = knock(&doors[other]);
            expect_accepted(ring, other == TCP, other == UNIX);
            close(theirs);
        }
        peer_quiet(ring);
        lm_ring_accept(ring, l, doors[l].fd);
        int theirs = knock(&doors[l]);
        expect_accepted(ring, l == TCP, l == UNIX);
        close(theirs);
        for (uint32_t each = 0; each < DOORS; each++) {
            lm_ring_cancel_accept(ring, each);
            expect_cancelled(ring, each);
        }
    }
    for (uint32_t l = 0; l < DOORS; l++) close(doors[l].fd);
}

/* ---- receiving ---- */

static void expect_header(struct lm_ring *ring, uint32_t index, uint32_t generation,
                          const void *bytes, size_t count) {
    struct lm_completion found = peer_next(ring, LM_OP_RECV_HEADER, index, generation);
    CHECK(found.result == (int32_t)count);
    CHECK(found.buffer >= 0 && found.buffer < LM_HEADER_BUFFERS);
    CHECK(memcmp(lm_ring_buffer(ring, found.buffer), bytes, count) == 0);
    lm_ring_buffer_return(ring, found.buffer);
}

static void check_header(struct lm_ring *ring) {
    static uint8_t bytes[LM_HEADER_BUFFER_BYTES + 904];
    for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = pattern(at);
    int ours, theirs;
    peer_pair(&ours, &theirs);
    lm_ring_recv_header(ring, ours, 5, 77);
    peer_quiet(ring);
    peer_send(theirs, "abc", 3);
    expect_header(ring, 5, 77, "abc", 3);
    for (int i = 0; i < 100; i++) { /* there before it is asked for, and after */
        if (i % 2) peer_send(theirs, &i, sizeof i);
        lm_ring_recv_header(ring, ours, 5, 77);
        if (i % 2 == 0) peer_send(theirs, &i, sizeof i);
        expect_header(ring, 5, 77, &i, sizeof i);
    }
    /* More than a buffer: the rest is there for the next one. */
    peer_send(theirs, bytes, sizeof bytes);
    lm_ring_recv_header(ring, ours, 5, 77);
    expect_header(ring, 5, 77, bytes, LM_HEADER_BUFFER_BYTES);
    lm_ring_recv_header(ring, ours, 5, 77);
    expect_header(ring, 5, 77, bytes + LM_HEADER_BUFFER_BYTES, 904);
    /* Bytes and the end together: one after the other. */
    peer_send(theirs, "end", 3);
    close(theirs);
    lm_ring_recv_header(ring, ours, 5, 77);
    expect_header(ring, 5, 77, "end", 3);
    lm_ring_recv_header(ring, ours, 5, 77);
    struct lm_completion found = peer_next(ring, LM_OP_RECV_HEADER, 5, 77);
    CHECK(found.result == 0);
    if (found.buffer != LM_NO_BUFFER) lm_ring_buffer_return(ring, found.buffer);
    close(ours);
}

/* An urgent byte cuts reads short although more is there. */
static void check_urgent(struct lm_ring *ring) {
    int ours, theirs;
    uint8_t body[6] = {0};
    peer_pair(&ours, &theirs);
    lm_ring_recv(ring, ours, body, sizeof body, 6, 1);
    peer_quiet(ring);
    peer_send(theirs, "abc", 3);
    CHECK(send(theirs, "!", 1, MSG_OOB | MSG_NOSIGNAL) == 1);
    peer_send(theirs, "def", 3);
    struct lm_completion found = peer_next(ring, LM_OP_RECV, 6, 1);
    CHECK(found.result == 6 && memcmp(body, "abcdef", 6) == 0);
    close(ours);
    close(theirs);
}

struct feeder {
    int fd;
    const uint8_t *bytes;
    size_t count;
    uint64_t random;
    pthread_t thread;
};

static void *feed(void *argument) {
    struct feeder *feeder = argument;
    for (size_t at = 0; at < feeder->count;) {
        size_t piece = 1 + check_below(&feeder->random, 100000);
        if (piece > feeder->count - at) piece = feeder->count - at;
        if (send(feeder->fd, feeder->bytes + at, piece, MSG_NOSIGNAL) != (ssize_t)piece) break;
        at += piece;
    }
    return NULL;
}

/* A body comes whole however it is sent; what comes before the end of a stream is told first. */
static void check_body(struct lm_ring *ring, uint8_t *sent, uint8_t *body, uint64_t random) {
    int ours, theirs;
    peer_pair(&ours, &theirs);
    memset(body, 0, BODY_BYTES);
    struct feeder feeder = {.fd = theirs, .bytes = sent, .count = BODY_BYTES, .random = random};
    lm_ring_recv(ring, ours, body, BODY_BYTES, 7, 0xfffffe);
    peer_quiet(ring);
    CHECK(pthread_create(&feeder.thread, NULL, feed, &feeder) == 0);
    struct lm_completion found = peer_next(ring, LM_OP_RECV, 7, 0xfffffe);
    pthread_join(feeder.thread, NULL);
    CHECK(found.result == BODY_BYTES && found.buffer == LM_NO_BUFFER);
    CHECK(memcmp(body, sent, BODY_BYTES) == 0);

    lm_ring_recv(ring, ours, body, 1000, 7, 0xfffffe);
    for (int piece = 0; piece < 3; piece++) {
        peer_send(theirs, sent, 200);
        peer_quiet(ring);
    }
    shutdown(theirs, SHUT_WR);
    found = peer_next(ring, LM_OP_RECV, 7, 0xfffffe);
    CHECK(found.result == 600);
    lm_ring_recv(ring, ours, body, 400, 7, 0xfffffe);
    found = peer_next(ring, LM_OP_RECV, 7, 0xfffffe);
    CHECK(found.result == 0);
    close(ours);
    close(theirs);
}

/* Bytes that come before a connection is reset are told first, too. */
static void check_reset(struct lm_ring *ring, const uint8_t *sent, uint8_t *body) {
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    int ours, theirs;
    peer_pair(&ours, &theirs);
    memset(body, 0, 1000);
    peer_send(theirs, sent, 600);
    CHECK(setsockopt(theirs, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    close(theirs);
    lm_ring_recv(ring, ours, body, 1000, 8, 5);
    struct lm_completion found = peer_next(ring, LM_OP_RECV, 8, 5);
    CHECK(found.result == 600 && memcmp(body, sent, 600) == 0);
    lm_ring_recv(ring, ours, body, 400, 8, 5);
    CHECK(peer_next(ring, LM_OP_RECV, 8, 5).result <= 0);
    close(ours);
}

/* A receive that is taken back tells what has come, and what comes later is the next one's. */
static void check_cancel(struct lm_ring *ring, const uint8_t *sent, uint8_t *body) {
    int ours, theirs;
    peer_pair(&ours, &theirs);
    for (int32_t came = 0; came <= 600; came += 200) {
        lm_ring_recv(ring, ours, body, 1000, 9, 0xabcdef);
        peer_quiet(ring);
        if (came) peer_send(theirs, sent, (size_t)came);
        if (came) peer_quiet(ring);
        lm_ring_cancel_recv(ring, 9, 0xabcdef);
        struct lm_completion found = {.op = LM_OP_CANCEL};
        while (found.op == LM_OP_CANCEL)
            while (lm_ring_wait(ring, 0, UINT64_MAX, &found, 1) == 0) continue;
        CHECK(found.op == LM_OP_RECV && found.index == 9 && found.generation == 0xabcdef);
        CHECK(found.result == (came ? came : -ECANCELED));
        CHECK(memcmp(body, sent, (size_t)came) == 0);
        peer_send(theirs, sent, 50);
        lm_ring_recv(ring, ours, body, 50, 9, 0xabcdef);
        do {
            while (lm_ring_wait(ring, 0, UINT64_MAX, &found, 1) == 0) continue;
        } while (found.op == LM_OP_CANCEL);
        CHECK(found.op == LM_OP_RECV && found.result == 50 && memcmp(body, sent, 50) == 0);
    }
    close(ours);
    close(theirs);
}

static void set_low_mark(int fd, int bytes) {
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0);
}

/* Then the kernel reports a socket as readable whatever its low mark (tcp_epollin_ready). */
static bool tcp_lacks_memory(void) {
    char line[256], name[32], pressed[8];
    FILE *file = fopen("/proc/net/protocols", "r");
    bool lacks = false;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%31s %*s %*s %*s %7s", name, pressed) == 2 && strcmp(name, "TCP") == 0)
            lacks = strcmp(pressed, "yes") == 0;
    if (file) fclose(file);
    return lacks;
}

/* The armed poll does not complete, unless the machine is short of memory: then it is armed anew.
 */
static void quiet_below_mark(struct lm_ring *ring, int ours) {
    struct lm_completion found;
    for (int i = 0; i < 3; i++) {
        if (lm_ring_wait(ring, 0, 2000000, &found, 1) == 0) continue;
        CHECK(found.op == LM_OP_READABLE);
        CHECK(tcp_lacks_memory());
        lm_ring_poll(ring, ours, 2, 1);
    }
}

/* Readable is what has as many bytes as were asked for, or will have no more; and it is the next
 * receive that takes them. */
static void check_poll(struct lm_ring *ring, uint8_t *sent, uint8_t *body) {
    int ours, theirs;
    peer_pair(&ours, &theirs);
    peer_send(theirs, sent, 32);
    lm_ring_recv_header(ring, ours, 2, 1);
    expect_header(ring, 2, 1, sent, 32);
    for (int round = 0; round < 2; round++) {
        /* What is there, and known to be, when the poll starts is too little. */
        peer_send(theirs, sent, 100);
        set_low_mark(ours, 40 << 10);
        lm_ring_poll(ring, ours, 2, 1);
        quiet_below_mark(ring, ours);
        peer_send(theirs, sent, 1000);
        quiet_below_mark(ring, ours);
        for (size_t at = 1100; at < 40 << 10;) {
            size_t left = (40 << 10) - at, most = left < 8192 ? left : 8192;
            peer_send(theirs, sent, most);
            at += most;
        }
        CHECK(peer_next(ring, LM_OP_READABLE, 2, 1).result >= 0);
        set_low_mark(ours, 1);
        lm_ring_recv(ring, ours, body, 40 << 10, 2, 1);
        CHECK(peer_next(ring, LM_OP_RECV, 2, 1).result == 40 << 10);
    }
    /* Less will do after all: the mark is lowered while the poll is under way. */
    set_low_mark(ours, 5000);
    peer_send(theirs, sent, 10);
    lm_ring_poll(ring, ours, 2, 1);
    quiet_below_mark(ring, ours);
    set_low_mark(ours, 1);
    CHECK(peer_next(ring, LM_OP_READABLE, 2, 1).result >= 0);
    /* No more will come. */
    set_low_mark(ours, 5000);
    lm_ring_poll(ring, ours, 2, 1);
    quiet_below_mark(ring, ours);
    CHECK(shutdown(theirs, SHUT_WR) == 0);
    CHECK(peer_next(ring, LM_OP_READABLE, 2, 1).result >= 0);
    lm_ring_recv(ring, ours, body, 100, 2, 1);
    CHECK(peer_next(ring, LM_OP_RECV, 2, 1).result == 10);
    close(theirs);
    close(ours);
}

/* F8, F9: who finds no buffer is told; one that comes back goes to one owner. */
static void check_buffers_run_out(struct lm_ring *ring) {
    static int32_t held[LM_HEADER_BUFFERS];
    static bool is_held[LM_HEADER_BUFFERS];
    int ours, theirs;
    peer_pair(&ours, &theirs);
    memset(is_held, 0, sizeof is_held);
    for (int b = 0; b < LM_HEADER_BUFFERS; b++) {
        peer_send(theirs, "x", 1);
        lm_ring_recv_header(ring, ours, 9, 3);
        struct lm_completion found = peer_next(ring, LM_OP_RECV_HEADER, 9, 3);
        CHECK(found.result == 1 && found.buffer >= 0 && found.buffer < LM_HEADER_BUFFERS);
        CHECK(!is_held[found.buffer]);
        is_held[found.buffer] = true;
        held[b] = found.buffer;
    }
    peer_send(theirs, "y", 1);
    for (int i = 0; i < 3; i++) {
        lm_ring_recv_header(ring, ours, 9, 3);
        struct lm_completion found = peer_next(ring, LM_OP_RECV_HEADER, 9, 3);
        CHECK(found.result == -ENOBUFS && found.buffer == LM_NO_BUFFER);
    }
    lm_ring_buffer_return(ring, held[0]);
    lm_ring_recv_header(ring, ours, 9, 3);
    expect_header(ring, 9, 3, "y", 1);
    for (int b = 1; b < LM_HEADER_BUFFERS; b++) lm_ring_buffer_return(ring, held[b]);
    close(ours);
    close(theirs);
}

/* ---- sending ---- */

struct drain {
    int fd;
    uint8_t *bytes;
    size_t count, got;
    pthread_t thread;
};

static void *drain(void *argument) {
    struct drain *drain = argument;
    while (drain->got < drain->count) {
        size_t most = drain->count - drain->got < 30000 ? drain->count - drain->got : 30000;
        ssize_t got = recv(drain->fd, drain->bytes + drain->got, most, 0);
        if (got <= 0) break;
        drain->got += (size_t)got;
    }
    return NULL;
}

/* F14, much through little: many parts, some empty, while a receive waits on the same socket. */
static void check_send(struct lm_ring *ring, uint8_t *sent, uint8_t *body) {
    enum { PARTS = 3 * LM_EPOLL_SEND_PARTS };
    static struct iovec parts[PARTS];
    const int small = 4096;
    int ours, theirs;
    peer_pair(&ours, &theirs);
    setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    size_t at = 0;
    for (size_t p = 0; p < PARTS; p++) {
        size_t bytes = p % 5 == 3 ? 0 : p == PARTS - 1 ? SEND_BYTES - at : SEND_BYTES / PARTS;
        parts[p] = (struct iovec){sent + at, bytes};
        at += bytes;
    }
    CHECK(at == SEND_BYTES);
    memset(body, 0, SEND_BYTES);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = PARTS};
    struct drain reader = {.fd = theirs, .bytes = body, .count = SEND_BYTES};
    lm_ring_recv_header(ring, ours, 11, 4);
    lm_ring_send(ring, ours, &message, 11, 4);
    peer_quiet(ring); /* the socket is full */
    CHECK(pthread_create(&reader.thread, NULL, drain, &reader) == 0);
    struct lm_completion found = peer_next(ring, LM_OP_SEND, 11, 4);
    pthread_join(reader.thread, NULL);
    CHECK(found.result == SEND_BYTES && reader.got == SEND_BYTES);
    CHECK(memcmp(body, sent, SEND_BYTES) == 0);
    peer_send(theirs, "go on", 5);
    expect_header(ring, 11, 4, "go on", 5);
    /* To one that has gone: an error, no signal. */
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(theirs, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(theirs);
    message.msg_iovlen = 1;
    lm_ring_send(ring, ours, &message, 11, 4);
    found = peer_next(ring, LM_OP_SEND, 11, 4);
    CHECK(found.result == -ECONNRESET || found.result == -EPIPE);
    close(ours);
}

/* ---- ends ---- */

/* F11: shutdown(2) ends what is under way, and what has come is told. */
static void check_shutdown(struct lm_ring *ring, uint8_t *sent) {
    static const int hows[] = {SHUT_RD, SHUT_RDWR};
    for (int h = 0; h < 2; h++) {
        for (int waited = 0; waited < 2; waited++) {
            uint8_t body[16];
            int ours, theirs;
            uint32_t generation = (uint32_t)(4 * h + waited);
            peer_pair(&ours, &theirs);
            lm_ring_recv_header(ring, ours, 1, generation);
            if (waited) peer_quiet(ring);
            shutdown(ours, hows[h]);
            struct lm_completion found = peer_next(ring, LM_OP_RECV_HEADER, 1, generation);
            CHECK(found.result == 0);
            if (found.buffer != LM_NO_BUFFER) lm_ring_buffer_return(ring, found.buffer);
            close(ours);
            close(theirs);

            peer_pair(&ours, &theirs);
            lm_ring_recv(ring, ours, body, sizeof body, 1, generation + 2);
            peer_send(theirs, "half", 4);
            if (waited) peer_quiet(ring);
            shutdown(ours, hows[h]);
            found = peer_next(ring, LM_OP_RECV, 1, generation + 2);
            CHECK(found.result == 4);
            close(ours);
            close(theirs);
        }
    }
    /* A send into a full socket. */
    int ours, theirs;
    struct iovec part = {sent, BODY_BYTES};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    const int small = 4096;
    peer_pair(&ours, &theirs);
    setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    setsockopt(theirs, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    lm_ring_send(ring, ours, &message, 2, 50);
    peer_quiet(ring);
    shutdown(ours, SHUT_RDWR);
    struct lm_completion found = peer_next(ring, LM_OP_SEND, 2, 50);
    CHECK(found.result == -EPIPE || (found.result > 0 && found.result < BODY_BYTES));
    close(ours);
    close(theirs);
}

/* F12: the next owner of an index and of a descriptor's number hears nothing of the last one. */
static void check_reuse(struct lm_ring *ring) {
    int before = -1, ours, theirs, same = 0;
    for (uint32_t generation = 0; generation < 40; generation++) {
        int spare = -1;
        peer_pair(&ours, &theirs);
        same += ours == before;
        lm_ring_recv_header(ring, ours, 63, generation);
        peer_quiet(ring);
        peer_send(theirs, &generation, sizeof generation);
        expect_header(ring, 63, generation, &generation, sizeof generation);
        /* Something nobody waits for: its event is still on its way when the descriptor goes. A
         * duplicate, as a forked child has, keeps the old socket in the set. */
        peer_send(theirs, "late", 4);
        if (generation % 2) spare = dup(ours);
        before = ours;
        close(ours);
        int next, next_theirs;
        peer_pair(&next, &next_theirs);
        lm_ring_recv_header(ring, next, 63, generation + 1000);
        (void)!send(theirs, "later", 5, MSG_NOSIGNAL); /* refused where no duplicate is left */
        peer_quiet(ring);
        peer_send(next_theirs, "mine", 4);
        expect_header(ring, 63, generation + 1000, "mine", 4);
        close(next);
        close(next_theirs);
        close(theirs);
        if (spare >= 0) close(spare);
    }
    CHECK(same > 0); /* or the numbers were never the same */
}

/* ---- connecting ---- */

/* Of a socket whose number and index had another owner before; what follows is on the connection.
 */
static void check_connect(struct lm_ring *ring) {
    struct sockaddr_in address;
    int listener = peer_listener(&address), fd, theirs;
    for (uint32_t generation = 1; generation <= 20; generation++) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0);
        lm_ring_connect(ring, fd, (struct sockaddr *)&address, sizeof address, 7, generation);
        CHECK(peer_next(ring, LM_OP_CONNECT, 7, generation).result == 0);
        CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK)); /* as it was */
        theirs = accept(listener, NULL, NULL);
        CHECK(theirs >= 0);
        lm_ring_recv_header(ring, fd, 7, generation);
        peer_send(theirs, &generation, sizeof generation);
        expect_header(ring, 7, generation, &generation, sizeof generation);
        close(fd);
        close(theirs);
    }
    close(listener); /* nobody listens there any more */
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    lm_ring_connect(ring, fd, (struct sockaddr *)&address, sizeof address, 7, 30);
    CHECK(peer_next(ring, LM_OP_CONNECT, 7, 30).result == -ECONNREFUSED);
    close(fd);
    lm_ring_connect(ring, fd, (struct sockaddr *)&address, sizeof address, 8, 30);
    CHECK(peer_next(ring, LM_OP_CONNECT, 8, 30).result == -EBADF);
}

/* A unix socket, and one whose listener has no room: told at once, or when there is some. */
static void check_connect_unix(struct lm_ring *ring) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const bool waits = strcmp(lm_ring_backend(ring), "io_uring") == 0;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), first, second;
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "lumen-ring-%d", getpid());
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, 0) == 0);
    first = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    second = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    lm_ring_connect(ring, first, (struct sockaddr *)&address, sizeof address, 1, 1);
    CHECK(peer_next(ring, LM_OP_CONNECT, 1, 1).result == 0);
    lm_ring_connect(ring, second, (struct sockaddr *)&address, sizeof address, 2, 1);
    if (waits) {
        peer_quiet(ring);
        close(accept(listener, NULL, NULL));
    }
    CHECK(peer_next(ring, LM_OP_CONNECT, 2, 1).result == (waits ? 0 : -EAGAIN));
    close(first);
    close(second);
    close(listener);
}

/* ---- waking and waiting ---- */

static void *ring_often(void *argument) {
    for (int i = 0; i < 1000; i++) lm_ring_wake(argument);
    return NULL;
}

static void check_wake(struct lm_ring *ring) {
    struct lm_completion found;
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, ring_often, ring) == 0);
        (void)peer_next(ring, LM_OP_WAKE, 0, 0);
        pthread_join(thread, NULL);
        while (lm_ring_wait(ring, 0, 2000000, &found, 1) > 0) CHECK(found.op == LM_OP_WAKE);
    }
    lm_ring_wake(ring);
    (void)peer_next(ring, LM_OP_WAKE, 0, 0);
}

/* F20: waits of any length end. */
static void check_timeouts(struct lm_ring *ring) {
    struct lm_completion found[4];
    static const uint64_t timeouts[] = {0, 1, 999, 100000, 1000000, 3000000};
    for (size_t t = 0; t < sizeof timeouts / sizeof timeouts[0]; t++) {
        for (uint64_t poll_ns = 0; poll_ns <= 50000; poll_ns += 50000) {
            uint64_t began_ns = lm_now_ns();
            CHECK(lm_ring_wait(ring, poll_ns, timeouts[t], found, 4) == 0);
            CHECK(lm_now_ns() - began_ns >= timeouts[t]); /* it did wait; how late, who knows */
        }
    }
    lm_ring_wake(ring);
    CHECK(lm_ring_wait(ring, 50000, UINT64_MAX, found, 4) == 1 && found[0].op == LM_OP_WAKE);
}

static lm_atomic_u32 signalled; /* 1: enough */

static void nothing(int number) {
    (void)number;
}

static void *signal_often(void *thread) {
    while (!lm_load_relaxed_u32(&signalled)) { /* relaxed: nothing else is read */
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        sched_yield();
    }
    return NULL;
}

/* F16: a signal ends no wait with an error. */
static void check_signals(struct lm_ring *ring) {
    const struct sigaction action = {.sa_handler = nothing};
    pthread_t self = pthread_self(), thread;
    struct lm_completion found;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    lm_store_relaxed_u32(&signalled, 0); /* relaxed: no thread runs yet */
    CHECK(pthread_create(&thread, NULL, signal_often, &self) == 0);
    for (int i = 0; i < 50; i++) CHECK(lm_ring_wait(ring, 0, 1000000, &found, 1) == 0);
    lm_store_relaxed_u32(&signalled, 1); /* relaxed: as above */
    pthread_join(thread, NULL);
}

/* A descriptor that is none completes with an error, as any other trouble. */
static void check_bad_descriptor(struct lm_ring *ring) {
    uint8_t byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    lm_ring_recv(ring, 1000000, &byte, 1, 30, 8);
    CHECK(peer_next(ring, LM_OP_RECV, 30, 8).result == -EBADF);
    lm_ring_send(ring, 1000000, &message, 30, 8);
    CHECK(peer_next(ring, LM_OP_SEND, 30, 8).result == -EBADF);
}

/* F6: more completions than io_uring's queue holds: each comes all the same, once, and it is
 * counted that the queue was full. */
static void more_than_the_queue_holds(void) {
    enum { POLLS = 3 * LM_CQ_ENTRIES_MIN / 2 };
    static bool seen[POLLS];
    struct lm_completion found[64];
    struct lm_ring *ring;
    int pair[2], count;
    if (lm_ring_open(&ring, LUMEN_IO_URING, CONNECTIONS) != 0) return; /* said above */
    CHECK_AT("more than the queue holds");
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && write(pair[1], "x", 1) == 1);
    for (uint32_t i = 0; i < POLLS; i++) lm_ring_poll(ring, pair[0], i, 1);
    for (uint32_t left = POLLS; left > 0;) {
        CHECK((count = lm_ring_wait(ring, 0, UINT64_MAX, found, 64)) >= 0);
        for (int c = 0; c < count; c++, left--) {
            CHECK(found[c].op == LM_OP_READABLE && found[c].result >= 0);
            CHECK(found[c].index < POLLS && !seen[found[c].index]);
            seen[found[c].index] = true;
        }
    }
    CHECK(lm_ring_overflows(ring) > 0);
    lm_ring_close(ring);
    close(pair[0]);
    close(pair[1]);
}

int main(void) {
    uint64_t random = check_seed();
    uint8_t *sent = malloc(BODY_BYTES), *body = malloc(BODY_BYTES);
    CHECK(sent && body);
    for (size_t at = 0; at < BODY_BYTES; at++) sent[at] = pattern(at);
    for (int v = 0; v < PEER_VARIANTS; v++) {
        struct lm_ring *ring = peer_ring(&peer_variants[v], CONNECTIONS);
        if (!ring) continue;
        CHECK_AT("%s without '%s': %s", lm_ring_backend(ring), peer_variants[v].mask,
                 lm_ring_detail(ring));
        check_watchdog(120, check_where);
        int code = lm_ring_check(ring); /* what io_uring has to pass, epoll passes too */
        if (code) CHECK_AT("%s: %s", lm_ring_backend(ring), lm_error_last());
        CHECK(code == 0);
        check_accept(ring);
        check_descriptors(ring);
        check_listeners(ring);
        check_listeners_without_descriptors(ring);
        check_one_listener(ring);
        for (int local = 0; local < 2; local++) {
            peer_is_unix = local;
            check_header(ring);
            if (!local) check_urgent(ring); /* on unix sockets it depends on the kernel's build */
            check_body(ring, sent, body, random);
            check_reset(ring, sent, body);
            check_cancel(ring, sent, body);
            if (!local) check_poll(ring, sent, body); /* unix sockets have no low mark */
            check_buffers_run_out(ring);
            check_send(ring, sent, body);
            check_shutdown(ring, sent);
            check_reuse(ring);
        }
        check_connect(ring);
        check_connect_unix(ring);
        check_wake(ring);
        check_timeouts(ring);
        check_signals(ring);
        check_bad_descriptor(ring);
        CHECK(lm_ring_overflows(ring) == 0);
        lm_ring_close(ring);
    }
    more_than_the_queue_holds();
    free(sent);
    free(body);
    return check_finish("test_ring");
}
