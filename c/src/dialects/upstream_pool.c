/* upstream_pool.c: see upstream_pool.h. */
#include "dialects/upstream_pool.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "base/error.h"
#include "base/random.h"
#include "dialects/upstream_link.h"
#include "dialects/upstream_trunk.h"
#include "flow/tls.h"

enum {
    FAILURES_MAX = 5, /* then an address is left alone */
    EJECTED_S = 30,
    DOWN_S = 5,          /* so long a model is not ready whose upstream's connections stay open */
    DIAL_PAUSE_MS = 500, /* behind a connection that could not be had */
    RETRIES_FREE = 3,    /* however few requests there are */
    SHARE_S = 10         /* over which the share of retries is measured */
};

static struct lm_upstream_health *health_of(struct lm_io *io, uint32_t upstream, uint32_t address) {
    return &io->upstream->pools[upstream].addresses[address];
}

/* A number below that: which of two addresses is looked at is no secret. */
static uint32_t draw(struct lm_upstream_side *side, uint32_t below) {
    return (uint32_t)((lm_random_next(&side->random) >> 32) * below >> 32);
}

/* Whether the entry has an address to be chosen. What is known of another one that was in it is
 * forgotten. */
static bool is_used(struct lm_io *io, uint32_t upstream, uint32_t address) {
    const struct lm_upstream_address *entry = &lm_upstream_at(io, upstream)->addresses[address];
    struct lm_upstream_health *health = health_of(io, upstream, address);
    if (!lm_upstream_address_is_used(entry)) return false;
    if (health->number == entry->number) return true;
    LM_DEBUG_ASSERT(health->open == 0 && health->busy == 0);
    if (health->ticket) io->shared->sessions->openssl->SSL_SESSION_free(health->ticket);
    *health = (struct lm_upstream_health){.idle = LM_NO_LINK,
                                          .carrying = LM_NO_LINK,
                                          .number = entry->number,
                                          .streams = LM_CARRIED_FIRST,
                                          .speaks_http2 = lm_upstream_at(io, upstream)->http2 ==
                                                          LUMEN_HTTP2_ALWAYS};
    return true;
}

/* ---- which address ---- */

uint32_t lm_upstream_choose(struct lm_io *io, uint32_t upstream, uint32_t tried) {
    uint32_t fit[LUMEN_UPSTREAM_ADDRESSES_MAX], found = 0;
    for (int pass = 0; pass < 2 && found == 0; pass++) { /* where all are ejected, any will do */
        for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++) {
            if (tried >> a & 1 || !is_used(io, upstream, a)) continue;
            if (pass || health_of(io, upstream, a)->ejected_until_ns <= io->now_ns)
                fit[found++] = a;
        }
    }
    if (found == 0) return LM_NO_ADDRESS_LEFT;
    const uint32_t one = draw(io->upstream, found);
    if (found == 1) return fit[one];
    const uint32_t other = (one + 1 + draw(io->upstream, found - 1)) % found;
    const bool is_other =
        health_of(io, upstream, fit[other])->busy < health_of(io, upstream, fit[one])->busy;
    return fit[is_other ? other : one];
}

void lm_upstream_succeeded(struct lm_io *io, uint32_t upstream, uint32_t address) {
    struct lm_upstream_health *health = health_of(io, upstream, address);
    health->failures = 0;
    health->ejected_until_ns = 0;
    /* relaxed: a word for those who ask whether the model is ready */
    lm_store_relaxed_u32(&io->shared->upstreams.at[upstream]->is_down, 0);
}

/* As many as half of the addresses may be left alone at a time. */
static bool may_eject(struct lm_io *io, uint32_t upstream) {
    uint32_t ejected = 0, count = 0;
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++) {
        if (!is_used(io, upstream, a)) continue;
        count++;
        ejected += health_of(io, upstream, a)->ejected_until_ns > io->now_ns;
    }
    return ejected < (count + 1) / 2;
}

void lm_upstream_failed(struct lm_io *io, uint32_t upstream, uint32_t address) {
    struct lm_upstream_health *health = health_of(io, upstream, address);
    bool is_down = true;
    health->failures++;
    health->failed_ns = io->now_ns;
    if (health->failures >= FAILURES_MAX && health->ejected_until_ns <= io->now_ns &&
        may_eject(io, upstream)) {
        health->ejected_until_ns = io->now_ns + EJECTED_S * 1000000000ull;
        lm_add_single_writer_u64(&io->stats->io.upstream_ejections, 1);
    }
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++)
        is_down =
            is_down && (!is_used(io, upstream, a) || health_of(io, upstream, a)->failures > 0);
    /* relaxed: as above */
    if (is_down) lm_store_relaxed_u32(&io->shared->upstreams.at[upstream]->is_down, 1);
}

bool lm_upstream_may_retry(struct lm_io *io, uint32_t upstream) {
    struct lm_upstream_pool *pool = &io->upstream->pools[upstream];
    const struct lm_upstream *of = lm_upstream_at(io, upstream);
    if (!of->retries || pool->retried * 100 >= pool->asked * of->retry_percent + RETRIES_FREE * 100)
        return false;
    pool->retried++;
    return true;
}

/* ---- links ---- */

static void leave_idle(struct lm_io *io, struct lm_link *link) {
    struct lm_link *links = io->upstream->links;
    struct lm_upstream_health *health = health_of(io, link->upstream, link->address);
    const uint32_t index = (uint32_t)(link - links);
    if (health->idle == index) health->idle = link->next;
    if (link->previous != LM_NO_LINK) links[link->previous].next = link->next;
    if (link->next != LM_NO_LINK) links[link->next].previous = link->previous;
    link->previous = link->next = LM_NO_LINK;
    io->upstream->busy++;
    lm_upstream_wake(io);
}

/* With TLS 1.3 it comes behind the greeting, with the first answers. */
static void keep_ticket(struct lm_io *io, const struct lm_link *link) {
    struct lm_upstream_health *health = health_of(io, link->upstream, link->address);
    const struct lm_tls_session *session = lm_tls_session_of(io, lm_link_connection(io, link));
    if (!session) return;
    const struct lm_openssl *openssl = io->shared->sessions->openssl;
    /* A copy: the original is worth nothing once its connection has ended without a word. */
    SSL_SESSION *now = openssl->SSL_get1_session(session->ssl);
    SSL_SESSION *copy = now ? openssl->SSL_SESSION_dup(now) : NULL;
    if (now) openssl->SSL_SESSION_free(now);
    if (!copy) return;
    if (health->ticket) openssl->SSL_SESSION_free(health->ticket);
    health->ticket = copy;
}

static void note_use(struct lm_io *io, struct lm_link *link) {
    link->is_used = true;
    if (!link->has_ticket) keep_ticket(io, link);
    link->has_ticket = true;
}

void lm_upstream_finished(struct lm_io *io, struct lm_link *link) {
    if (link->stream.is_stream) {
        note_use(io, &io->upstream->links[lm_trunk_of(io, link)->link]);
        lm_stream_finish(io, link);
        return;
    }
    note_use(io, link);
    if (link->keep_alive && !lm_link_connection(io, link)->ended) {
        lm_upstream_rest(io, link);
    } else {
        lm_upstream_drop(io, link);
    }
}

void lm_upstream_rest(struct lm_io *io, struct lm_link *link) {
    if (!is_used(io, link->upstream, link->address)) { /* it has gone meanwhile */
        lm_upstream_drop(io, link);
        return;
    }
    struct lm_link *links = io->upstream->links;
    struct lm_upstream_health *health = health_of(io, link->upstream, link->address);
    link->state = LM_LINK_IDLE;
    link->slot = LM_NO_SLOT;
    link->previous = LM_NO_LINK;
    link->next = health->idle;
    link->idle_until_ns =
        link->keep_alive_s > 1 ? io->now_ns + (link->keep_alive_s - 1) * 1000000000ull : UINT64_MAX;
    if (health->idle != LM_NO_LINK) links[health->idle].previous = (uint32_t)(link - links);
    health->idle = (uint32_t)(link - links);
    io->upstream->busy--;
    lm_link_hold(io, lm_link_connection(io, link), false);
}

void lm_upstream_drop_tickets(struct lm_io *io) {
    for (uint32_t u = 0; u < io->shared->upstreams.count; u++) {
        for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++) {
            SSL_SESSION *ticket = health_of(io, u, a)->ticket;
            if (ticket) io->shared->sessions->openssl->SSL_SESSION_free(ticket);
        }
    }
}

void lm_upstream_drop(struct lm_io *io, struct lm_link *link) {
    struct lm_connection *connection = lm_link_connection(io, link);
    if (link->state == LM_LINK_IDLE) leave_idle(io, link);
    link->slot = LM_NO_SLOT;
    if (!link->connects && !link->sends) lm_link_hold(io, connection, false);
    link->state = LM_LINK_OVER;
    lm_connection_abort(io, connection);
}

void lm_upstream_forget(struct lm_io *io, struct lm_link *link) {
    if (link->state == LM_LINK_FREE) return;
    if (link->state == LM_LINK_IDLE) leave_idle(io, link);
    if (link->trunk != LM_NO_TRUNK) lm_trunk_forget(io, link);
    health_of(io, link->upstream, link->address)->open--;
    /* A3: acq_rel: behind the last use of the address; pairs with A4 in parts/upstreams.c */
    (void)lm_sub_acq_rel_u64(
        &io->shared->upstreams.at[link->upstream]->addresses[link->address].links, 1);
    lm_link_give(io, link);
}

static struct lm_link *dial(struct lm_io *io, uint32_t upstream, uint32_t address) {
    struct lm_upstream_address *to = &io->shared->upstreams.at[upstream]->addresses[address];
    const int on = 1;
    lm_add_single_writer_u64(&io->stats->io.upstream_dials, 1);
    int fd = socket(to->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return NULL;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct lm_connection *connection = lm_connection_open_dialed(io, fd, LM_DIALECT_UPSTREAM);
    if (!connection) {
        close(fd);
        errno = EAGAIN;
        return NULL;
    }
    struct lm_link *link = lm_link_take(io);
    LM_ASSERT(link); /* there is one for each connection that may be dialed, and for each stream */
    link->connection = connection->index;
    link->generation = connection->generation;
    link->upstream = (uint8_t)upstream;
    link->address = (uint8_t)address;
    link->state = LM_LINK_DIALING;
    link->connects = true;
    connection->in.carried = (uint32_t)(link - io->upstream->links);
    lm_link_hold(io, connection, true); /* the kernel has it */
    health_of(io, upstream, address)->open++;
    (void)lm_count_relaxed_u64(&to->links,
                               1); /* relaxed: this turn's, which A4's reader waits for */
    lm_ring_connect(io->ring, fd, (const struct sockaddr *)&to->socket, to->socket_bytes,
                    connection->index, connection->generation);
    return link;
}

/* A stream of the connection with the fewest; NULL: none takes one more. */
static struct lm_link *open_stream(struct lm_io *io, const struct lm_upstream_health *health) {
    struct lm_link *links = io->upstream->links, *best = NULL;
    for (uint32_t l = health->carrying; l != LM_NO_LINK; l = links[l].next) {
        const struct lm_upstream_trunk *trunk = lm_trunk_of(io, &links[l]);
        if (trunk->is_closing || trunk->open >= trunk->open_max ||
            lm_link_connection(io, &links[l])->ended)
            continue;
        if (!best || trunk->open < lm_trunk_of(io, best)->open) best = &links[l];
    }
    return best ? lm_trunk_stream(io, best) : NULL;
}

struct lm_link *lm_upstream_link(struct lm_io *io, uint32_t upstream, uint32_t address,
                                 bool is_fresh) {
    struct lm_upstream_health *health = health_of(io, upstream, address);
    struct lm_link *stream = open_stream(io, health);
    if (stream) return stream;
    while (!is_fresh && health->idle != LM_NO_LINK) {
        struct lm_link *link = &io->upstream->links[health->idle];
        if (link->idle_until_ns > io->now_ns && !lm_link_connection(io, link)->ended) {
            leave_idle(io, link);
            return link;
        }
        lm_upstream_drop(io, link);
    }
    struct lm_link *link = dial(io, upstream, address);
    if (!link || !health->speaks_http2) return link;
    if (lm_trunk_begin(io, link) && (stream = lm_trunk_stream(io, link))) return stream;
    lm_upstream_drop(io, link); /* as many as there may be */
    errno = EAGAIN;
    return NULL;
}

/* Halves what is known of retries from time to time: of late, they are so many. */
static void age(struct lm_io *io, struct lm_upstream_pool *pool) {
    if (io->now_ns < pool->since_ns + SHARE_S * 1000000000ull) return;
    pool->since_ns = io->now_ns;
    pool->asked /= 2;
    pool->retried /= 2;
}

/* The address is in use no more. */
static void leave(struct lm_io *io, const struct lm_upstream_health *health) {
    struct lm_link *links = io->upstream->links;
    while (health->idle != LM_NO_LINK) lm_upstream_drop(io, &links[health->idle]);
    for (uint32_t l = health->carrying; l != LM_NO_LINK; l = links[l].next)
        lm_trunk_close(io, &links[l]);
}

/* Lets the model be ready again, after a pause, where an address that has failed has a connection:
 * a client that asks only while the model is ready would never ask again. false: the pause is not
 * over. */
static bool forgive(struct lm_io *io, uint32_t upstream, uint32_t address) {
    const struct lm_upstream_health *health = health_of(io, upstream, address);
    if (health->failures == 0 || health->open == 0) return true;
    if (io->now_ns < health->failed_ns + DOWN_S * 1000000000ull) return false;
    /* relaxed: a word for those who ask whether the model is ready */
    lm_store_relaxed_u32(&io->shared->upstreams.at[upstream]->is_down, 0);
    return true;
}

bool lm_upstream_keep(struct lm_io *io) {
    const struct lm_upstreams *upstreams = &io->shared->upstreams;
    bool all = true;
    for (uint32_t u = 0; u < upstreams->count; u++) {
        age(io, &io->upstream->pools[u]);
        for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++) {
            struct lm_upstream_health *health = health_of(io, u, a);
            if (!is_used(io, u, a)) {
                leave(io, health);
                continue;
            }
            if (!forgive(io, u, a)) all = false;
            if (health->open >= upstreams->at[u]->connections) continue;
            all = false;
            if (io->now_ns < health->next_dial_ns) continue;
            health->next_dial_ns = io->now_ns + DIAL_PAUSE_MS * 1000000ull;
            while (health->open < upstreams->at[u]->connections)
                if (!dial(io, u, a)) break;
        }
    }
    return all;
}
