/* upstream.c: see upstream.h. */
#include "dialects/upstream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "dialects/http_refuse.h"
#include "dialects/http_texts.h"
#include "dialects/upstream_end.h"
#include "dialects/upstream_fallback.h"
#include "dialects/upstream_greet.h"
#include "dialects/upstream_hedge.h"
#include "dialects/upstream_pool.h"
#include "dialects/upstream_receive.h"
#include "dialects/upstream_reply.h"
#include "dialects/upstream_send.h"
#include "dialects/upstream_trunk.h"
#include "flow/estimate.h"
#include "flow/gate.h"
#include "flow/reply.h"
#include "flow/slots.h"
#include "flow/submit.h"

enum { IDLE_TICK_MS = 1000, LINKS_MAX = 65536 };

/* ---- opening ---- */

uint32_t lm_upstreams_links_max(const struct lm_upstreams *upstreams) {
    uint64_t links = 0;
    for (uint32_t u = 0; u < upstreams->count; u++)
        links += upstreams->at[u]->in_flight +
                 (uint64_t)upstreams->at[u]->connections * LUMEN_UPSTREAM_ADDRESSES_MAX;
    return links < LINKS_MAX ? (uint32_t)links : LINKS_MAX;
}

int lm_upstreams_open(struct lm_io *io) {
    const struct lm_shared *shared = io->shared;
    if (shared->upstreams.count == 0) return 0;
    struct lm_upstream_side *side = calloc(1, sizeof *side);
    io->upstream = side;
    if (!side) return lm_error(LUMEN_E_NOMEM, "no memory for upstreams");
    const size_t slots = lm_arena_slots_max(&io->arena);
    side->links_max = 2 * io->dialed_max; /* connections, and streams */
    int code = lm_mapping_reserve(&side->links_memory, side->links_max * sizeof *side->links);
    if (!code) code = lm_trunks_open(io);
    if (!code) code = lm_mapping_reserve(&side->exchanges_memory, slots * sizeof *side->exchanges);
    if (code) return lm_error(LUMEN_E_NOMEM, "no memory for the connections of upstreams");
    side->links = side->links_memory.base;
    side->exchanges = side->exchanges_memory.base;
    side->free_link = LM_NO_LINK;
    side->random = lm_random_seeded(lm_now_ns() ^ io->index);
    for (uint32_t u = 0; u < LUMEN_UPSTREAMS_MAX; u++)
        for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++)
            side->pools[u].addresses[a].idle = side->pools[u].addresses[a].carrying = LM_NO_LINK;
    return lm_openai_parser_open(&side->parser, (size_t)shared->config.max_request_bytes);
}

void lm_upstreams_shut(struct lm_io *io) {
    if (!io->upstream) return;
    lm_upstream_drop_tickets(io);
    lm_openai_parser_close(io->upstream->parser);
    lm_mapping_close(&io->upstream->links_memory);
    lm_trunks_close(io);
    lm_mapping_close(&io->upstream->exchanges_memory);
    free(io->upstream);
    io->upstream = NULL;
}

/* ---- requests ---- */

/* Takes of budgets what the request may need: what it asks, by its bytes, and all that its answers
 * may have. */
static bool reserve(struct lm_io *io, struct lm_request *request, struct lm_exchange *exchange,
                    struct lm_refusal *refusal) {
    const struct lm_upstream *upstream = lm_upstream_at(io, request->model->upstream - 1);
    const struct lm_openai_request *asked = &exchange->asked;
    const uint8_t route = request->wish.route;
    const bool writes =
        route == LM_ROUTE_CHAT || route == LM_ROUTE_COMPLETIONS || route == LM_ROUTE_RESPONSES;
    const uint64_t answer = asked->tokens_max ? asked->tokens_max : upstream->answer_tokens;
    exchange->prompt_tokens =
        (asked->prompt_bytes + upstream->token_bytes - 1) / upstream->token_bytes;
    exchange->usage = (struct lm_usage_reader){0};
    uint64_t tokens = exchange->prompt_tokens;
    if (writes) tokens += answer * asked->answers; /* each is below 2^32 */
    if (!lm_gate_reserve(io, request, tokens, refusal)) return false;
    exchange->is_metered = request->tally.of[0] || request->tally.of[1];
    return true;
}

/* The request is this upstream's, and goes to one of its addresses. false: it does not take it. */
static bool begin_there(struct lm_io *io, struct lm_connection *client, struct lm_request *request,
                        struct lm_refusal *refusal) {
    const uint32_t slot = request->slot->index;
    request->received_ns = request->popped_ns = lm_now_ns();
    request->preprocessed_ns = request->inferred_ns = request->received_ns;
    if (!reserve(io, request, lm_exchange_of(io, slot), refusal)) return false;
    if (!lm_upstream_begin(io, client, request, refusal)) {
        lm_slots_settle(request, 0);
        return false;
    }
    lm_add_single_writer_u64(&io->stats->io.upstream_requests, 1);
    lm_add_single_writer_u64(&io->stats->models[request->model->index].io.model_queued, 1);
    return true;
}

/* A model that is served here takes its place. false: it does not. */
static bool run_here(struct lm_io *io, struct lm_connection *client, struct lm_request *request,
                     struct lm_refusal *refusal) {
    request->stands_in = true;
    if (!lm_gate_reserve(io, request, lm_gate_most_tokens(request), refusal)) return false;
    lm_submit(io, client, request);
    return true;
}

static void end_without_answer(struct lm_io *io, uint32_t slot,
                               const struct lm_upstream_failure *failure);

/* Sends what has begun. */
static void start(struct lm_io *io, uint32_t slot) {
    struct lm_upstream_failure failure;
    if (!lm_upstream_start(io, slot, &failure)) end_without_answer(io, slot, &failure);
}

/* Nobody has answered the request, and its client has no byte of an answer: the next model may. */
static void end_without_answer(struct lm_io *io, uint32_t slot,
                               const struct lm_upstream_failure *failure) {
    struct lm_request *request = &io->requests[slot];
    struct lm_connection *client = lm_exchange_client(io, slot);
    struct lm_refusal refusal = {.status = LM_STATUS_OVERLOADED,
                                 .why = "its upstream gave no answer, and the next model of the "
                                        "list is there no more"};
    if (io->now_ns >= lm_exchange_of(io, slot)->until_ns || !lm_upstream_has_next_model(io, slot)) {
        lm_upstream_tell(io, slot, failure);
        return;
    }
    lm_upstream_give_up(io, slot);
    for (const struct lm_model *model; (model = lm_upstream_next_model(io, slot));) {
        const bool is_elsewhere = lm_model_is_elsewhere(model);
        request->model = model;
        lm_http_take_model(client, model);
        /* Its key was asked before. */
        if (!lm_gate_enter_model(io, model, LM_NO_KEY, &refusal)) continue;
        if (!is_elsewhere && run_here(io, client, request, &refusal)) return;
        if (!is_elsewhere || !begin_there(io, client, request, &refusal)) continue;
        start(io, slot);
        return;
    }
    lm_slots_release(io, request);
    lm_http_refuse_request(io, client, &refusal);
}

void lm_upstream_submit(struct lm_io *io, struct lm_connection *client, struct lm_request *request,
                        const struct lm_openai_request *asked) {
    const uint32_t slot = request->slot->index;
    struct lm_exchange *exchange = lm_exchange_of(io, slot);
    struct lm_refusal refusal;
    client->in.receiving = LM_NO_SLOT;
    client->in.read_state = LM_READ_HEADER;
    client->in.call.chunked = false;
    request->payload_bytes = (uint32_t)request->body.bytes;
    lm_estimate_suspend(io, request); /* no worker has it */
    exchange->asked = asked ? *asked : (struct lm_openai_request){0};
    exchange->head = NULL;
    exchange->window = NULL;
    if (exchange->wanted == LM_NO_INDEX) { /* or it has come in the place of another model */
        exchange->wanted = (uint16_t)request->model->index;
        exchange->fallen = 0;
    }
    if (begin_there(io, client, request, &refusal)) {
        start(io, slot);
        return;
    }
    lm_slots_release(io, request);
    lm_http_refuse_request(io, client, &refusal);
}

void lm_upstream_client_left(struct lm_io *io, struct lm_connection *client) {
    const uint32_t slot = client->in.call.exchange - 1;
    const struct lm_exchange *exchange = lm_exchange_of(io, slot);
    /* It is over when the kernel is done with what it has of the slot. */
    struct lm_link *link = &io->upstream->links[exchange->link];
    struct lm_link *rival = lm_upstream_rival(io, link);
    lm_link_cut(io, link, LM_FAULT_CLOSED);
    if (rival) lm_link_cut(io, rival, LM_FAULT_CLOSED);
}

/* ---- what flow/ asks ---- */

/* The link is over, and the kernel and the client are done with its request's slot: the request is
 * sent again, or ends. false: they are not yet. */
static bool lose(struct lm_io *io, struct lm_link *link) {
    struct lm_upstream_failure failure;
    if (link->slot == LM_NO_SLOT) return true;
    if (lm_exchange_client(io, link->slot)->sending == link->slot) return false; /* it marks this */
    if (!link->stream.is_stream) lm_upstream_ended(io, link);
    const uint32_t slot = link->slot;
    if (slot != LM_NO_SLOT && !lm_upstream_lose(io, link, &failure))
        end_without_answer(io, slot, &failure);
    return true;
}

/* Its other side has closed it, or this one has. */
static void carry(struct lm_io *io, struct lm_connection *connection) {
    struct lm_link *link = lm_link_of(io, connection);
    if (!connection->ended || !link) return;
    if (link->connects || link->sends || !lose(io, link)) return;
    lm_link_hold(io, connection, false);
    lm_upstream_forget(io, link);
}

/* Nothing comes of the streams of a connection that has ended. */
static void cut_all(struct lm_io *io, const struct lm_upstream_trunk *trunk,
                    const struct lm_link *link) {
    for (uint32_t p = lm_trunk_places_next(&trunk->used, 0); p < LM_CARRIED_MAX;
         p = lm_trunk_places_next(&trunk->used, p + 1)) {
        struct lm_link *stream = lm_carried(io, trunk, p);
        if (!lm_trunk_places_have(&trunk->over, p)) stream->refusal = link->refusal;
        lm_stream_cut(io, stream, (enum lm_link_fault)link->fault, false);
    }
}

/* Goes on with the streams of a connection, ends those that are over, and sends what there is. */
static void carry_streams(struct lm_io *io, struct lm_connection *connection) {
    struct lm_link *link = lm_link_of(io, connection);
    if (!link || link->connects) return;
    struct lm_upstream_trunk *trunk = lm_trunk_of(io, link);
    if (connection->ended) cut_all(io, trunk, link);
    for (uint32_t p = lm_trunk_places_next(&trunk->held, 0); p < LM_CARRIED_MAX;
         p = lm_trunk_places_next(&trunk->held, p + 1))
        lm_stream_go_on(io, lm_carried(io, trunk, p));
    for (uint32_t p = lm_trunk_places_next(&trunk->over, 0); p < LM_CARRIED_MAX;
         p = lm_trunk_places_next(&trunk->over, p + 1)) {
        struct lm_link *stream = lm_carried(io, trunk, p);
        if (!stream->sends && lose(io, stream)) lm_stream_forget(io, stream);
    }
    if (!connection->ended && trunk->is_ready) lm_trunk_flush(io, connection, trunk);
    const bool is_over = trunk->open == 0 && !trunk->sends;
    if (trunk->is_closing && is_over && !connection->ended) lm_connection_abort(io, connection);
    lm_link_hold(io, connection, !is_over);
    if (connection->ended && is_over) lm_upstream_forget(io, link);
}

static void sent(struct lm_io *io, struct lm_connection *connection,
                 const struct lm_completion *completion) {
    struct lm_link *link = lm_link_of(io, connection);
    if (link) lm_upstream_sent(io, link, completion);
}

static void sent_frames(struct lm_io *io, struct lm_connection *connection,
                        const struct lm_completion *completion) {
    struct lm_link *link = lm_link_of(io, connection);
    if (link) lm_trunk_sent(io, connection, lm_trunk_of(io, link), completion);
}

static uint64_t no_deadline(const struct lm_io *io, const struct lm_connection *connection) {
    (void)io, (void)connection;
    return 0; /* lm_upstream_due has them */
}

static void forget(struct lm_io *io, struct lm_connection *connection) {
    (void)io, (void)connection; /* carry does that */
}

static void give_up(struct lm_io *io, struct lm_connection *connection, enum lm_status status,
                    const char *why) {
    (void)status, (void)why;
    lm_connection_abort(io, connection);
}

const struct lm_dialect lm_upstream = {.name = "upstream",
                                       .one_at_a_time = true,
                                       .take = lm_upstream_take,
                                       .descriptor = lm_upstream_greet,
                                       .prologue_deadline_ns = no_deadline,
                                       .forget = forget,
                                       .carry = carry,
                                       .sent = sent,
                                       .give_up = give_up};

const struct lm_dialect lm_upstream_http2 = {.name = "upstream, HTTP/2",
                                             .one_at_a_time = true,
                                             .take = lm_trunk_take,
                                             .descriptor = lm_upstream_greet,
                                             .prologue_deadline_ns = no_deadline,
                                             .forget = forget,
                                             .carry = carry_streams,
                                             .sent = sent_frames,
                                             .give_up = give_up};

/* ---- what is due ---- */

uint64_t lm_upstream_due_ns(const struct lm_io *io) {
    const struct lm_upstream_side *side = io->upstream;
    if (!side || side->next_due_ns == UINT64_MAX) return UINT64_MAX;
    return side->next_due_ns > io->now_ns ? side->next_due_ns - io->now_ns : 0;
}

/* Which of its patiences has ended; -1: none has. */
static int late(const struct lm_io *io, const struct lm_link *link) {
    const struct lm_upstream *upstream = lm_upstream_at(io, link->upstream);
    const uint64_t since_ns = io->now_ns - link->moved_ns;
    const bool is_dialing = link->state == LM_LINK_DIALING;
    if (is_dialing && upstream->connect_ns && since_ns > upstream->connect_ns)
        return LM_FAULT_DIALED_LATE;
    const bool is_silent = upstream->silence_ns && since_ns > upstream->silence_ns;
    /* A stream whose answer is whole waits for its end. */
    if (link->slot == LM_NO_SLOT) return link->stream.is_stream && is_silent ? LM_FAULT_SILENT : -1;
    if (io->now_ns >= lm_exchange_of(io, link->slot)->until_ns) return LM_FAULT_LATE;
    if (is_dialing) return -1;
    const uint64_t patience_ns =
        link->state == LM_LINK_ASKING ? upstream->first_byte_ns : upstream->silence_ns;
    return patience_ns && since_ns > patience_ns ? LM_FAULT_SILENT : -1;
}

/* A comment in a stream of events that says nothing: what lies between does not think that it is
 * over. */
static void ping(struct lm_io *io, const struct lm_link *link) {
    static const char comment[] = ": ping\n\n";
    const uint64_t every_ns = lm_upstream_at(io, link->upstream)->ping_ns;
    if (!every_ns || link->state != LM_LINK_ANSWERING) return;
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    struct lm_connection *client = lm_exchange_client(io, link->slot);
    const uint64_t since_ns =
        exchange->pinged_ns > link->moved_ns ? exchange->pinged_ns : link->moved_ns;
    const bool is_open = exchange->is_events && exchange->at_rest && exchange->head_passed &&
                         exchange->framing != LM_EXCHANGE_BY_LENGTH;
    if (!is_open || io->now_ns - since_ns < every_ns) return;
    exchange->pinged_ns = io->now_ns;
    memcpy(exchange->event, comment, sizeof comment - 1);
    if (lm_upstream_say(io, link->slot, sizeof comment - 1, false) == LM_OUTCOME_PARTIAL)
        lm_reply_rest(io, client, &io->requests[link->slot]);
}

/* Nobody there has said anything since the request went: whoever is on the connection waits in
 * vain. */
static bool is_deaf(const struct lm_io *io, const struct lm_link *link, int fault) {
    const bool is_asked = link->stream.is_stream && link->stream.id && fault == LM_FAULT_SILENT;
    return is_asked && lm_trunk_of(io, link)->heard_ns < link->moved_ns;
}

static void look(struct lm_io *io, struct lm_link *link) {
    struct lm_connection *connection = lm_link_connection(io, link);
    if (connection->ended) return;
    /* Nothing of it is read while its client does not: that is no silence. */
    const bool waits =
        link->slot != LM_NO_SLOT && lm_exchange_client(io, link->slot)->sending == link->slot;
    if (waits) {
        link->moved_ns = io->now_ns;
        return;
    }
    const int fault = late(io, link);
    if (fault < 0) {
        ping(io, link);
        lm_upstream_hedge(io, link);
        const bool is_kept = link->stream.is_stream &&
                             lm_trunk_places_have(&lm_trunk_of(io, link)->held, link->stream.place);
        if (connection->buffer != LM_NO_BUFFER || is_kept) lm_connection_mark(io, connection);
        return;
    }
    const bool is_deaf_now = is_deaf(io, link, fault);
    lm_link_cut(io, link, (enum lm_link_fault)fault);
    if (is_deaf_now) lm_connection_abort(io, connection);
}

void lm_upstream_due(struct lm_io *io) {
    struct lm_upstream_side *side = io->upstream;
    if (!side || io->now_ns < side->next_due_ns) return;
    const bool are_kept = io->draining || lm_upstream_keep(io);
    for (uint32_t l = 0; side->busy > 0 && l < side->links_used; l++) {
        struct lm_link *link = &side->links[l];
        if (link->state != LM_LINK_FREE && link->state != LM_LINK_IDLE &&
            link->state != LM_LINK_CARRYING)
            look(io, link);
    }
    const uint32_t tick_ms =
        side->busy == 0 && are_kept ? (uint32_t)IDLE_TICK_MS : (uint32_t)LM_UPSTREAM_TICK_MS;
    side->next_due_ns = io->now_ns + tick_ms * 1000000ull;
}
