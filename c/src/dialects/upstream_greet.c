/* upstream_greet.c: see upstream_greet.h. */
#include "dialects/upstream_greet.h"

#include <errno.h>
#include <stdio.h>

#include "base/error.h"
#include "dialects/upstream_ask.h"
#include "dialects/upstream_pool.h"
#include "dialects/upstream_trunk.h"
#include "flow/tls.h"

static const char *host_of(const struct lm_io *io, const struct lm_link *link) {
    return lm_upstream_at(io, link->upstream)->addresses[link->address].tls_host;
}

/* It cannot be had. */
static void give_back(struct lm_io *io, struct lm_connection *connection, struct lm_link *link,
                      enum lm_link_fault fault) {
    lm_add_single_writer_u64(&io->stats->io.upstream_undialed, 1);
    if (!connection->ended) link->fault = (uint8_t)fault;
    if (link->slot == LM_NO_SLOT && link->state == LM_LINK_DIALING)
        lm_upstream_failed(io, link->upstream, link->address);
    if (link->slot != LM_NO_SLOT) lm_link_hold(io, connection, true); /* until that is over */
    link->state = link->slot == LM_NO_SLOT ? LM_LINK_OVER : LM_LINK_ASKING;
    lm_connection_abort(io, connection);
}

/* Its streams' requests go to other connections. */
static void cut_streams(struct lm_io *io, const struct lm_link *link) {
    const struct lm_upstream_trunk *trunk = lm_trunk_of(io, link);
    for (uint32_t p = lm_trunk_places_next(&trunk->used, 0); p < LM_CARRIED_MAX;
         p = lm_trunk_places_next(&trunk->used, p + 1))
        lm_carried(io, trunk, p)->is_used = true; /* as on one that was closed before */
    lm_connection_abort(io, lm_link_connection(io, link));
}

/* Whether it speaks HTTP/2. */
static bool has_http2(const struct lm_io *io, const struct lm_connection *connection,
                      const struct lm_link *link) {
    const struct lm_upstream *upstream = lm_upstream_at(io, link->upstream);
    if (!host_of(io, link)) return upstream->http2 == LUMEN_HTTP2_ALWAYS;
    return lm_tls_client_has_chosen(upstream->tls, lm_tls_session_of(io, connection),
                                    LM_ALPN_HTTP2);
}

/* The request that waits for the connection becomes a stream's, beside others that do. false: there
 * are as many as there may be. */
static bool begin_streams(struct lm_io *io, struct lm_link *link) {
    if (link->trunk == LM_NO_TRUNK && !lm_trunk_begin(io, link)) return false;
    const uint32_t slot = link->slot;
    struct lm_link *stream = slot == LM_NO_SLOT ? NULL : lm_trunk_stream(io, link);
    if (slot != LM_NO_SLOT && !stream) return false;
    if (stream) {
        stream->slot = slot;
        struct lm_exchange *exchange = lm_exchange_of(io, slot);
        uint32_t *its = exchange->link == (uint32_t)(link - io->upstream->links) ? &exchange->link
                                                                                 : &exchange->rival;
        *its = (uint32_t)(stream - io->upstream->links);
        link->slot = LM_NO_SLOT;
    }
    struct lm_upstream_trunk *trunk = lm_trunk_of(io, link);
    lm_trunk_greet(io, link);
    for (uint32_t p = lm_trunk_places_next(&trunk->used, 0); p < LM_CARRIED_MAX;
         p = lm_trunk_places_next(&trunk->used, p + 1))
        if (!lm_trunk_places_have(&trunk->over, p)) lm_upstream_send(io, lm_carried(io, trunk, p));
    if (trunk->open == 0) lm_upstream_succeeded(io, link->upstream, link->address);
    return true;
}

/* It is connected, and greeted: its request goes out, or it waits for one. */
static void begin(struct lm_io *io, struct lm_connection *connection, struct lm_link *link) {
    struct lm_upstream_health *health =
        &io->upstream->pools[link->upstream].addresses[link->address];
    connection->in.read_state = LM_READ_PROLOGUE;
    link->moved_ns = io->now_ns;
    health->speaks_http2 = has_http2(io, connection, link);
    if (!health->speaks_http2 && lm_upstream_at(io, link->upstream)->http2 == LUMEN_HTTP2_ALWAYS) {
        snprintf(io->upstream->untrusted, sizeof io->upstream->untrusted,
                 "expected HTTP/2 at %.128s (ALPN: h2), found another HTTP", host_of(io, link));
        give_back(io, connection, link, LM_FAULT_UNTRUSTED);
        return;
    }
    if (health->speaks_http2) {
        link->refusal = ENOMEM;
        if (!begin_streams(io, link)) give_back(io, connection, link, LM_FAULT_UNDIALED);
    } else if (link->trunk != LM_NO_TRUNK) { /* it did when it was asked last */
        cut_streams(io, link);
    } else if (link->slot == LM_NO_SLOT) {
        lm_upstream_succeeded(io, link->upstream, link->address);
        lm_upstream_rest(io, link);
    } else {
        lm_upstream_send(io, link);
    }
}

void lm_upstream_greet(struct lm_io *io, struct lm_connection *connection) {
    struct lm_link *link = lm_link_of(io, connection);
    if (!link || connection->ended) return;
    const struct lm_tls_client *client = lm_upstream_at(io, link->upstream)->tls;
    struct lm_tls_session *session = lm_tls_session_of(io, connection);
    char *why = io->upstream->untrusted;
    switch (lm_tls_client_greet(client, session, host_of(io, link), why,
                                sizeof io->upstream->untrusted)) {
    case LM_TLS_WAITS: return; /* it is asked for when the connection is advanced */
    case LM_TLS_REFUSED: give_back(io, connection, link, LM_FAULT_UNTRUSTED); return;
    case LM_TLS_GREETED: break;
    }
    session->may_read = true;
    lm_link_hold(io, connection, false);
    begin(io, connection, link);
}

/* It is connected: TLS begins. false: there is no memory. */
static bool begin_tls(struct lm_io *io, struct lm_connection *connection, struct lm_link *link) {
    struct lm_upstream_health *health =
        &io->upstream->pools[link->upstream].addresses[link->address];
    const struct lm_tls_client *client = lm_upstream_at(io, link->upstream)->tls;
    struct lm_tls_session *session =
        lm_tls_client_begin(client, connection->fd, host_of(io, link), health->ticket);
    if (!session) return false;
    session->now_ns = &io->now_ns;
    lm_tls_session_put(io->shared->sessions, connection->fd, session);
    connection->transport = LM_TRANSPORT_TLS;
    io->tls->open++;
    connection->in.started_ns = io->now_ns;
    connection->in.read_state = LM_READ_DESCRIPTOR; /* the socket is waited for */
    return true;
}

void lm_upstream_connected(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    struct lm_link *link = lm_link_of(io, connection);
    LM_ASSERT(connection->generation == completion->generation && link);
    link->connects = false;
    lm_link_hold(io, connection, false);
    lm_connection_mark(io, connection);
    if (completion->result < 0 || connection->ended) {
        link->refusal = -completion->result;
        give_back(io, connection, link, LM_FAULT_UNDIALED);
    } else if (!host_of(io, link)) {
        begin(io, connection, link);
    } else if (begin_tls(io, connection, link)) {
        lm_upstream_greet(io, connection);
    } else {
        link->refusal = ENOMEM;
        give_back(io, connection, link, LM_FAULT_UNDIALED);
    }
}
