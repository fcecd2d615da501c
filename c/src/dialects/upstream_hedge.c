/* upstream_hedge.c: see upstream_hedge.h. */
#include "dialects/upstream_hedge.h"

#include "dialects/upstream_ask.h"
#include "dialects/upstream_pool.h"
#include "dialects/upstream_trunk.h"

static uint32_t index_of(const struct lm_io *io, const struct lm_link *link) {
    return (uint32_t)(link - io->upstream->links);
}

static uint32_t rival_at(const struct lm_io *io, const struct lm_link *link, uint32_t slot) {
    const struct lm_exchange *exchange = lm_exchange_of(io, slot);
    return exchange->link == index_of(io, link) ? exchange->rival : exchange->link;
}

struct lm_link *lm_upstream_rival(const struct lm_io *io, const struct lm_link *link) {
    if (link->slot == LM_NO_SLOT || lm_exchange_of(io, link->slot)->rival == LM_NO_LINK)
        return NULL;
    return &io->upstream->links[rival_at(io, link, link->slot)];
}

static bool is_harmless(uint8_t route) {
    return route == LM_ROUTE_EMBEDDINGS || route == LM_ROUTE_RERANK ||
           route == LM_ROUTE_RERANK_V1 || route == LM_ROUTE_RERANK_V2;
}

void lm_upstream_hedge(struct lm_io *io, const struct lm_link *link) {
    const uint64_t patience_ns = lm_upstream_at(io, link->upstream)->hedge_ns;
    if (!patience_ns || link->slot == LM_NO_SLOT || link->state != LM_LINK_ASKING) return;
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    /* Its head is with the kernel, whose memory the second one's takes. */
    const bool is_sent = !link->sends && link->message.msg_iovlen == 0;
    if (!is_sent || link->has_answered || exchange->is_retried ||
        io->now_ns - link->moved_ns < patience_ns ||
        !is_harmless(io->requests[link->slot].wish.route))
        return;
    const uint32_t address = lm_upstream_choose(io, link->upstream, exchange->tried);
    if (address == LM_NO_ADDRESS_LEFT || !lm_upstream_may_retry(io, link->upstream)) return;
    exchange->is_retried = true;
    exchange->tried |= 1u << address;
    struct lm_request *request = &io->requests[link->slot];
    const uint32_t fed_by = request->fed_by;
    const uint64_t asked_ns = request->popped_ns;
    if (!lm_upstream_ask(io, link->slot, address, false)) return;
    lm_add_single_writer_u64(&io->stats->io.upstream_retries, 1);
    exchange->rival = index_of(io, link);
    request->fed_by = fed_by; /* until one of them has won */
    request->popped_ns = request->preprocessed_ns = asked_ns;
}

bool lm_upstream_may_answer(const struct lm_io *io, const struct lm_link *link) {
    const struct lm_link *rival = lm_upstream_rival(io, link);
    return !rival || !rival->sends;
}

/* The exchange has this link alone. */
static void keep_one(struct lm_io *io, uint32_t slot, uint32_t link) {
    struct lm_exchange *exchange = lm_exchange_of(io, slot);
    exchange->link = link;
    exchange->rival = LM_NO_LINK;
    io->requests[slot].fed_by = io->upstream->links[link].connection;
}

void lm_upstream_win(struct lm_io *io, struct lm_link *link) {
    struct lm_link *rival = lm_upstream_rival(io, link);
    if (!rival) return;
    keep_one(io, link->slot, index_of(io, link));
    io->upstream->pools[rival->upstream].addresses[rival->address].busy--;
    rival->slot = LM_NO_SLOT;
    if (!rival->stream.is_stream) rival->state = LM_LINK_OVER;
    lm_link_cut(io, rival, LM_FAULT_CLOSED);
}

bool lm_upstream_yield(struct lm_io *io, const struct lm_link *link, uint32_t slot) {
    if (lm_exchange_of(io, slot)->rival == LM_NO_LINK) return false;
    keep_one(io, slot, rival_at(io, link, slot));
    return true;
}
