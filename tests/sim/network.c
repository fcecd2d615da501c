/* network.c: connections as two streams of bytes in memory each, as a kernel shows them to both of
 * their ends: full and empty, half-closed, reset. Descriptors are given lowest first, as Linux
 * does, so that one used after its close hits another connection (F12).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "sim.h"

struct listener {
    int fd;
    bool open;
};

struct peer peers[PEERS_MAX];
uint32_t peer_count, fds_open;
static struct peer *owners[FDS_MAX];
static bool taken[FDS_MAX];
static struct listener listeners[LUMEN_IO_THREADS_MAX];

void client_wake(struct client *client); /* client.c */

void network_reset(void) {
    memset(owners, 0, sizeof owners);
    memset(taken, 0, sizeof taken);
    memset(listeners, 0, sizeof listeners);
    peer_count = 0;
    fds_open = 0;
}

void network_free(void) {
    for (uint32_t p = 0; p < peer_count; p++) {
        free(peers[p].to_server.bytes);
        free(peers[p].to_client.bytes);
    }
    peer_count = 0;
}

/* ---- descriptors ---- */

static int take_fd(struct peer *peer) {
    for (int f = 0; f < FDS_MAX; f++) {
        if (taken[f]) continue;
        taken[f] = true;
        owners[f] = peer;
        fds_open++;
        return FD_FIRST + f;
    }
    sim_fail("FDS_MAX is too small");
}

struct peer *peer_of(int fd) {
    return fd >= FD_FIRST && fd < FD_FIRST + FDS_MAX ? owners[fd - FD_FIRST] : NULL;
}

int listener_open(uint32_t io) {
    listeners[io] = (struct listener){.fd = take_fd(NULL), .open = true};
    return listeners[io].fd;
}

bool listener_is_open(uint32_t io) {
    return listeners[io].open;
}

struct peer *listener_next(uint32_t io) {
    for (uint32_t p = 0; p < peer_count; p++) {
        if (peers[p].waits && peers[p].io == io) return &peers[p];
    }
    return NULL;
}

void listener_abandon(uint32_t io) {
    struct peer *peer;
    while ((peer = listener_next(io))) {
        peer->waits = false;
        peer->server_closed = peer->client_reset = peer->excused = true;
        client_wake(peer->client);
    }
}

int peer_accept(struct peer *peer) {
    peer->waits = false;
    peer->fd = take_fd(peer);
    return peer->fd;
}

/* A refused connection is read for a while and not longer. */
static bool lingered_enough(const struct lm_io *io, int fd) {
    for (uint32_t i = 0; i < io->connections_used; i++) {
        const struct lm_connection *connection = &io->connections[i];
        if (fd < 0 || connection->fd != fd || connection->in.read_state != LM_READ_LINGER ||
            lm_connection_is_stream(connection))
            continue;
        return connection->in.discard_bytes == 0 || connection->timer_ns <= sim_now_ns;
    }
    return false;
}

/* What has not been read dies with it, and so does what is sent from then on: a reset. */
void peer_server_closes(struct peer *peer) {
    SIM_CHECK(peer->operations == 0, "close of fd %d with %u operations in the ring", peer->fd,
              peer->operations);
    const struct lm_io *io = &sim_shared.ios[peer->io];
    uint32_t open = 0;
    for (uint32_t i = 0; i < sim_shared.io_count; i++) open += sim_shared.ios[i].connections_open;
    /* Another thread's may have gone since. */
    bool full = open == sim_shared.config.max_connections || sim_shared.io_count > 1;
    SIM_CHECK(open <= sim_shared.config.max_connections, "%u connections of at most %u", open,
              sim_shared.config.max_connections);
    SIM_CHECK(peer->served || full || sim_draining || peer->excused,
              "a new connection is refused without a reason");
    peer->excused |= !peer->served || engine_ended_one(peer->io) || lingered_enough(io, peer->fd);
    peer->server_closed = true;
    peer->fd = -1;
    if (peer->to_server.count > 0 && !peer->client_gone) {
        peer->client_reset = true;
        if (sim_below(2)) peer->to_client.count = 0;
    }
    client_wake(peer->client);
}

int sim_close(int fd) {
    int f = fd - FD_FIRST;
    SIM_CHECK(f >= 0 && f < FDS_MAX && taken[f], "close of descriptor %d, which is closed", fd);
    SIM_TRACE("close fd %llu", fd);
    struct peer *peer = owners[f];
    taken[f] = false;
    owners[f] = NULL;
    fds_open--;
    for (uint32_t i = 0; !peer && i < sim_plan.io_count; i++) {
        if (listeners[i].fd != fd) continue;
        listeners[i].open = false;
        /* An accept in the ring keeps it alive. */
        if (!ring_accepts(sim_shared.ios[i].ring)) listener_abandon(i);
    }
    if (peer && peer->kept) {
        SIM_CHECK(ring_has_all(peer), "descriptor %d is closed before its receive is submitted",
                  fd);
        peer->fd = -1;
    } else if (peer) {
        peer_server_closes(peer);
    }
    return 0;
}

/* ---- streams ---- */

static uint32_t put(struct stream *stream, const uint8_t *bytes, uint32_t count) {
    uint32_t room = stream->capacity - stream->count;
    if (count > room) count = room;
    if (count) memcpy(stream->bytes + stream->count, bytes, count);
    stream->count += count;
    return count;
}

static uint32_t get(struct stream *stream, uint8_t *bytes, uint32_t most) {
    uint32_t count = stream->count < most ? stream->count : most;
    if (count) memcpy(bytes, stream->bytes, count);
    memmove(stream->bytes, stream->bytes + count, stream->count - count);
    stream->count -= count;
    return count;
}

static void open_stream(struct stream *stream) {
    uint32_t most = sim_plan.socket_bytes;
    bool whole = sim_plan.plain || sim_below(3);
    stream->capacity = whole ? most : (uint32_t)sim_between(most < 64 ? most : 64, most);
    stream->bytes = malloc(stream->capacity);
    stream->count = 0;
}

/* ---- the client's side ---- */

struct peer *peer_connect(struct client *client) {
    uint32_t io = sim_below(sim_plan.io_count);
    bool alive = listeners[io].open || ring_accepts(sim_shared.ios[io].ring);
    if (!alive || peer_count == PEERS_MAX) return NULL;
    struct peer *peer = &peers[peer_count];
    *peer =
        (struct peer){.client = client, .number = peer_count, .io = io, .fd = -1, .waits = true};
    peer_count++;
    open_stream(&peer->to_server);
    open_stream(&peer->to_client);
    return peer;
}

uint32_t peer_client_send(struct peer *peer, const uint8_t *bytes, uint32_t count) {
    if (peer->server_closed || peer->reset) {
        if (!peer->reset && count) peer->client_reset = true; /* the answer to it */
        return count;
    }
    return put(&peer->to_server, bytes, count);
}

int peer_client_receive(struct peer *peer, uint8_t *bytes, uint32_t most) {
    if (peer->to_client.count > 0) {
        uint32_t count = get(&peer->to_client, bytes, most);
        peer->client_read += count;
        return (int)count;
    }
    if (peer->client_reset || peer->reset) return -2;
    return peer->server_closed || peer->shut_wr ? 0 : -1;
}

void peer_client_finish(struct peer *peer) {
    peer->client_fin = true;
}

void peer_client_close(struct peer *peer, bool reset) {
    if (reset || peer->to_client.count > 0) peer->reset = true;
    if (reset) peer->to_server.count = 0;
    peer->client_fin = true;
    peer->client_gone = true;
    peer->to_client.count = 0;
}

void peer_break(struct peer *peer, int error) {
    SIM_TRACE("fault: peer %llu gets error %llu", peer->number, error);
    peer->error = error;
    peer->reset = true;
    peer->excused = true;
    peer->to_server.count = 0;
    client_wake(peer->client);
}

/* ---- the server's side ---- */

bool peer_can_receive(const struct peer *peer) {
    return peer->to_server.count > 0 || peer->error || peer->reset || peer->shut_rd ||
           peer->client_fin;
}

bool peer_is_readable(const struct peer *peer) {
    const struct stream *in = &peer->to_server;
    bool enough = in->count > 0 && (in->count >= peer->low_mark || in->count == in->capacity);
    return enough || peer->error || peer->reset || peer->shut_rd || peer->client_fin;
}

static int take_error(struct peer *peer) {
    int error = peer->error;
    peer->error = 0;
    return -error;
}

int peer_receive(struct peer *peer, uint8_t *bytes, uint32_t most) {
    if (peer->error) return take_error(peer);
    if (peer->to_server.count > 0) {
        uint32_t count = get(&peer->to_server, bytes, most);
        peer->server_read += count;
        client_wake(peer->client);
        return (int)count;
    }
    if (peer->reset && !peer->shut_rd) {
        peer->shut_rd = true; /* told once; then it is the end of the stream */
        return -ECONNRESET;
    }
    return peer->client_fin || peer->shut_rd ? 0 : -EAGAIN;
}

bool peer_can_send(const struct peer *peer) {
    return peer->error || peer->reset || peer->shut_wr || peer->client_gone ||
           peer->to_client.count < peer->to_client.capacity;
}

int peer_send(struct peer *peer, const struct iovec *parts, size_t count, size_t skip,
              uint32_t most) {
    uint32_t sent = 0;
    if (peer->error) return take_error(peer);
    if (peer->shut_wr || peer->reset) return -EPIPE;
    for (size_t p = 0; p < count; p++) {
        const uint8_t *bytes = parts[p].iov_base;
        size_t part = parts[p].iov_len;
        size_t skipped = skip < part ? skip : part;
        skip -= skipped;
        part -= skipped;
        if (part > most - sent) part = most - sent;
        if (part == 0) continue;
        uint32_t moved = peer->client_gone ? (uint32_t)part
                                           : put(&peer->to_client, bytes + skipped, (uint32_t)part);
        sent += moved;
        if (moved < part) break;
    }
    if (sent && peer->client_gone) peer->reset = true; /* what comes back for it */
    if (sent) client_wake(peer->client);
    return sent ? (int)sent : -EAGAIN;
}
