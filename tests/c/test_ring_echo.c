/* test_ring_echo.c: an echo server on ring.h under clients that come and go, send in pieces, and
 * break off at any point. Every byte comes back right, no completion reaches the wrong owner, and
 * all header buffers are there in the end. */
#include <netinet/tcp.h>
#include <pthread.h>

#include "base/limits.h"
#include "ring_peer.h"

enum {
    CLIENTS = 4,
    CONNECTIONS = 3,                    /* fewer than clients: indices are reused at once */
    LIVES = CHECK_UNDER_TSAN ? 15 : 40, /* connections of one client, one after another */
    MESSAGES = 12,                      /* of one connection, at most */
    MESSAGE_BYTES = 200000,
    LENGTH_BYTES = 4
};

/* ---- clients ---- */

struct client {
    const struct sockaddr_in *address;
    uint64_t random;
    uint64_t answers; /* looked at after the join */
    bool fine;
    uint8_t *sent, *got;
    pthread_t thread;
};

static bool send_in_pieces(struct client *client, int fd, size_t count) {
    for (size_t at = 0; at < count;) {
        size_t most = check_below(&client->random, 4) ? 100000 : 50;
        size_t piece = 1 + check_below(&client->random, (uint32_t)most);
        if (piece > count - at) piece = count - at;
        if (send(fd, client->sent + at, piece, MSG_NOSIGNAL) != (ssize_t)piece) return false;
        at += piece;
    }
    return true;
}

static bool receive_all(int fd, uint8_t *bytes, size_t count) {
    for (size_t at = 0; at < count;) {
        ssize_t got = recv(fd, bytes + at, count - at, 0);
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

/* false: an answer was wrong. */
static bool live(struct client *client, int fd) {
    uint32_t messages = check_below(&client->random, MESSAGES);
    for (uint32_t m = 0; m < messages; m++) {
        uint32_t most = check_below(&client->random, 3) ? 200 : MESSAGE_BYTES - LENGTH_BYTES;
        uint32_t bytes = check_below(&client->random, most);
        uint8_t mark = (uint8_t)check_random(&client->random);
        memcpy(client->sent, &bytes, LENGTH_BYTES);
        for (uint32_t b = 0; b < bytes; b++) client->sent[LENGTH_BYTES + b] = (uint8_t)(mark + b);
        size_t whole = LENGTH_BYTES + bytes;
        if (check_below(&client->random, 20) == 0) { /* breaks off */
            (void)send_in_pieces(client, fd, check_below(&client->random, (uint32_t)whole));
            return true;
        }
        if (!send_in_pieces(client, fd, whole)) return false;
        if (!receive_all(fd, client->got, whole)) return false;
        if (memcmp(client->got, client->sent, whole) != 0) return false;
        client->answers++;
    }
    return true;
}

static void *client_main(void *argument) {
    struct client *client = argument;
    client->fine = true;
    for (int life = 0; life < LIVES && client->fine; life++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* small pieces, sent at once */
        client->fine =
            connect(fd, (const struct sockaddr *)client->address, sizeof *client->address) == 0 &&
            live(client, fd);
        const struct linger now = {.l_onoff = 1, .l_linger = 0};
        if (check_below(&client->random, 3) == 0) /* with a reset */
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(fd);
    }
    return NULL;
}

/* ---- the server ---- */

struct connection {
    int fd;
    uint32_t generation;
    uint32_t have; /* of the message, its length included */
    bool armed, sending;
    uint8_t *message;
    struct iovec part;
    struct msghdr out;
};

struct server {
    struct lm_ring *ring;
    struct connection connections[CONNECTIONS];
    uint32_t closed;
    int parked[CLIENTS * LIVES]; /* accepted, but without a place yet */
    uint32_t parked_head, parked_tail;
};

static void serve(struct server *server, int fd);

static void end(struct server *server, struct connection *connection) {
    CHECK(!connection->armed && !connection->sending);
    close(connection->fd);
    connection->fd = -1;
    connection->generation = (connection->generation + 1) & 0xffffff;
    server->closed++;
    if (server->parked_head < server->parked_tail)
        serve(server, server->parked[server->parked_head++]);
}

static void receive(struct server *server, struct connection *connection) {
    uint32_t index = (uint32_t)(connection - server->connections), bytes;
    connection->armed = true;
    if (connection->have < LENGTH_BYTES) {
        lm_ring_recv_header(server->ring, connection->fd, index, connection->generation);
        return;
    }
    memcpy(&bytes, connection->message, LENGTH_BYTES);
    CHECK(bytes + LENGTH_BYTES <= MESSAGE_BYTES && bytes + LENGTH_BYTES > connection->have);
    lm_ring_recv(server->ring, connection->fd, connection->message + connection->have,
                 bytes + LENGTH_BYTES - connection->have, index, connection->generation);
}

static void serve(struct server *server, int fd) {
    for (int c = 0; c < CONNECTIONS; c++) {
        struct connection *connection = &server->connections[c];
        if (connection->fd >= 0) continue;
        connection->fd = fd;
        connection->have = 0;
        receive(server, connection);
        return;
    }
    CHECK(server->parked_tail < CLIENTS * LIVES);
    server->parked[server->parked_tail++] = fd;
}

/* Goes on after bytes have come: answers a whole message, receives the rest of another. */
static void go_on(struct server *server, struct connection *connection) {
    uint32_t index = (uint32_t)(connection - server->connections), bytes;
    memcpy(&bytes, connection->message, LENGTH_BYTES);
    if (connection->have < LENGTH_BYTES || connection->have < bytes + LENGTH_BYTES) {
        receive(server, connection);
        return;
    }
    CHECK(connection->have == bytes + LENGTH_BYTES); /* a client waits for its answer */
    connection->part = (struct iovec){connection->message, connection->have};
    connection->out = (struct msghdr){.msg_iov = &connection->part, .msg_iovlen = 1};
    connection->sending = true;
    lm_ring_send(server->ring, connection->fd, &connection->out, index, connection->generation);
}

static void received(struct server *server, const struct lm_completion *found) {
    struct connection *connection = &server->connections[found->index];
    CHECK(found->generation == connection->generation && connection->armed);
    connection->armed = false;
    if (found->buffer != LM_NO_BUFFER) {
        uint32_t count = found->result > 0 ? (uint32_t)found->result : 0;
        memcpy(connection->message + connection->have, lm_ring_buffer(server->ring, found->buffer),
               count);
        lm_ring_buffer_return(server->ring, found->buffer);
    }
    if (found->result <= 0) {
        CHECK(found->result == 0 || found->result == -ECONNRESET);
        end(server, connection);
        return;
    }
    connection->have += (uint32_t)found->result;
    go_on(server, connection);
}

static void sent(struct server *server, const struct lm_completion *found) {
    struct connection *connection = &server->connections[found->index];
    CHECK(found->generation == connection->generation && connection->sending);
    connection->sending = false;
    if (found->result != (int32_t)connection->have) {
        end(server, connection);
        return;
    }
    connection->have = 0;
    receive(server, connection);
}

static void run(struct lm_ring *ring, uint32_t capacity, uint64_t *random) {
    struct sockaddr_in address;
    struct client clients[CLIENTS];
    struct server server = {.ring = ring};
    struct lm_completion found[16];
    int listener = peer_listener(&address);
    for (int c = 0; c < CONNECTIONS; c++) {
        server.connections[c].fd = -1;
        server.connections[c].generation = 0xfffff0; /* wraps */
        server.connections[c].message = malloc(MESSAGE_BYTES + LM_HEADER_BUFFER_BYTES);
    }
    lm_ring_accept(ring, 0, listener);
    for (int c = 0; c < CLIENTS; c++) {
        clients[c] = (struct client){.address = &address,
                                     .random = check_random(random) | 1,
                                     .sent = malloc(MESSAGE_BYTES),
                                     .got = malloc(MESSAGE_BYTES)};
        CHECK(pthread_create(&clients[c].thread, NULL, client_main, &clients[c]) == 0);
    }
    while (server.closed < CLIENTS * LIVES) {
        uint64_t poll_ns = check_below(random, 4) ? 0 : 20000;
        int count = lm_ring_wait(ring, poll_ns, 50000000, found, capacity);
        CHECK(count >= 0 && count <= (int)capacity);
        for (int f = 0; f < count; f++) {
            switch (found[f].op) {
            case LM_OP_ACCEPT:
                CHECK(found[f].result >= 0 && found[f].more);
                serve(&server, found[f].result);
                break;
            case LM_OP_SEND: sent(&server, &found[f]); break;
            default: received(&server, &found[f]); break;
            }
        }
    }
    uint64_t answers = 0;
    for (int c = 0; c < CLIENTS; c++) {
        pthread_join(clients[c].thread, NULL);
        CHECK(clients[c].fine);
        answers += clients[c].answers;
        free(clients[c].sent);
        free(clients[c].got);
    }
    CHECK(answers > 0);
    lm_ring_cancel_accept(ring, 0);
    close(listener);
    while (lm_ring_wait(ring, 0, 1000000, found, 1) > 0) CHECK(!found[0].more);
    for (int c = 0; c < CONNECTIONS; c++) free(server.connections[c].message);
}

int main(void) {
    uint64_t random = check_seed();
    for (int v = 0; v < PEER_VARIANTS; v++) {
        struct lm_ring *ring = peer_ring(&peer_variants[v], CONNECTIONS);
        if (!ring) continue;
        static const uint32_t capacities[] = {16, 1, 3};
        for (int c = 0; c < 3; c++) {
            CHECK_AT("%s without '%s', %u completions at a time", lm_ring_backend(ring),
                     peer_variants[v].mask, capacities[c]);
            check_watchdog(120, check_where);
            run(ring, capacities[c], &random);
        }
        lm_ring_close(ring);
    }
    return check_finish("test_ring_echo");
}
