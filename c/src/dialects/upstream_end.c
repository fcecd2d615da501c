/* upstream_end.c: see upstream_end.h. */
#include "dialects/upstream_end.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "dialects/http_answer.h"
#include "dialects/http_code.h"
#include "dialects/upstream_ask.h"
#include "dialects/upstream_fallback.h"
#include "dialects/upstream_hedge.h"
#include "dialects/upstream_pool.h"
#include "flow/access_log.h"
#include "flow/reply.h"
#include "flow/slots.h"

/* ---- counting ---- */

static struct lm_upstream_health *health_of(struct lm_io *io, const struct lm_link *link) {
    return &io->upstream->pools[link->upstream].addresses[link->address];
}

static void count(struct lm_io *io, uint32_t upstream, int by) {
    struct lm_upstream *of = io->shared->upstreams.at[upstream];
    lm_atomic_u64 *in_flight = &io->stats->io.upstream_in_flight;
    /* relaxed, all: counts that guard nothing */
    if (by > 0) {
        (void)lm_count_relaxed_u64(&of->in_flight_now, 1);
    } else {
        (void)lm_sub_relaxed_u64(&of->in_flight_now, 1);
    }
    lm_store_relaxed_u64(in_flight, lm_load_relaxed_u64(in_flight) + (uint64_t)(int64_t)by);
}

/* Its times, as a worker's are recorded: it waited for a link, then for the answer's first byte.
 * `as`: upstream_ok, or that of its failure. */
static void record(struct lm_io *io, const struct lm_request *request, lm_atomic_u64 *as,
                   bool is_sent) {
    struct lm_io_counters *counters = &io->stats->io;
    struct lm_histogram *stages = io->stats->stages;
    struct lm_model_row *row = &io->stats->models[request->model->index];
    struct lm_model_histogram *of_model = row->stages;
    const uint64_t now_ns = lm_now_ns(), total_ns = now_ns - request->started_ns;
    const uint64_t queue_ns = request->popped_ns - request->received_ns;
    const uint64_t infer_ns = request->inferred_ns - request->preprocessed_ns;
    lm_store_relaxed_u64(&row->io.model_last_ms, lm_unix_ms()); /* relaxed: a gauge */
    lm_histogram_record(&stages[LM_STAGE_RECEIVE], request->received_ns - request->started_ns);
    lm_histogram_record(&stages[LM_STAGE_QUEUE], queue_ns);
    lm_histogram_record(&stages[LM_STAGE_PREPROCESS], 0);
    lm_histogram_record(&stages[LM_STAGE_INFER], infer_ns);
    lm_model_histogram_record(&of_model[LM_MODEL_STAGE_QUEUE], queue_ns);
    lm_model_histogram_record(&of_model[LM_MODEL_STAGE_INFER], infer_ns);
    if (is_sent) { /* else with the rest of it */
        lm_histogram_record(&stages[LM_STAGE_SEND], now_ns - request->inferred_ns);
        lm_histogram_record(&stages[LM_STAGE_TOTAL], total_ns);
        lm_model_histogram_record(&of_model[LM_MODEL_STAGE_TOTAL], total_ns);
    }
    lm_add_single_writer_u64(as, 1);
    if (as != &counters->upstream_ok) {
        lm_add_single_writer_u64(&row->io.model_failed, 1);
        lm_add_single_writer_u64(&row->io.model_failed_ns, total_ns);
        return;
    }
    lm_add_single_writer_u64(&counters->requests_ok, 1);
    lm_add_single_writer_u64(&row->io.model_ok, 1);
    lm_add_single_writer_u64(&row->io.model_ok_ns, total_ns);
    lm_add_single_writer_u64(&row->io.model_queue_ns, queue_ns);
    lm_add_single_writer_u64(&row->io.model_infer_ns, infer_ns);
    lm_add_single_writer_u64(&row->io.model_send_ns, now_ns - request->inferred_ns);
}

/* Its place in the table changes as others come and go, and what is counted in it goes along. */
static struct lm_arena_class *class_of(struct lm_io *io, const struct lm_slot *slot) {
    return &io->arena.classes[slot->class_index];
}

/* A quarter of the slots of each size is for models that are served here: an upstream may say
 * nothing for a minute. */
static bool has_share(struct lm_io *io, const struct lm_slot *slot) {
    const struct lm_arena_class *class = class_of(io, slot);
    const uint32_t count = class->slot_count;
    const uint32_t others = io->models->own_count && count > 1 ? (count + 3) / 4 : 0;
    return class->lent_count < count - others;
}

bool lm_upstream_begin(struct lm_io *io, struct lm_connection *client, struct lm_request *request,
                       struct lm_refusal *refusal) {
    struct lm_exchange *exchange = lm_exchange_of(io, request->slot->index);
    const uint32_t upstream = request->model->upstream - 1;
    const struct lm_upstream *of = lm_upstream_at(io, upstream);
    /* relaxed: a count; the next request may find one more */
    if (lm_load_relaxed_u64(&of->in_flight_now) >= of->in_flight)
        return lm_refuse(refusal, LM_STATUS_OVERLOADED, 0,
                         "upstream '%s' has %u requests in flight already (in_flight)", of->name,
                         of->in_flight);
    if (!has_share(io, request->slot))
        return lm_refuse(refusal, LM_STATUS_OVERLOADED, 0,
                         "upstreams have as many of this server's slots as they may: the others "
                         "are for the models that it serves itself");
    class_of(io, request->slot)->lent_count++;
    exchange->link = exchange->rival = LM_NO_LINK;
    exchange->upstream = (uint8_t)upstream;
    exchange->is_retried = exchange->is_renewed = false;
    exchange->head_passed = exchange->is_events = false;
    exchange->at_rest = true;
    exchange->tried = 0;
    exchange->status = 0;
    exchange->pinged_ns = 0;
    exchange->is_sent = false;
    exchange->window_used = 0;
    exchange->until_ns = of->total_ns ? request->received_ns + of->total_ns : UINT64_MAX;
    if (request->deadline_ns < exchange->until_ns) exchange->until_ns = request->deadline_ns;
    if (!exchange->head) exchange->head = lm_slot_alloc(request->slot, LM_UPSTREAM_HEAD_BYTES);
    if (!exchange->window)
        exchange->window = lm_slot_alloc(request->slot, LM_UPSTREAM_WINDOW_BYTES);
    LM_ASSERT(exchange->head && exchange->window); /* http_admit.c has asked for them */
    client->in.call.exchange = request->slot->index + 1;
    client->in_flight++;
    count(io, upstream, 1);
    io->upstream->pools[upstream].asked++;
    return true;
}

/* How many tokens the request was. Where its answer does not say, an event counts as a token, and
 * an answer that is no stream as all that the request has taken. */
static uint64_t tokens_of(const struct lm_exchange *exchange, const struct lm_request *request) {
    if (exchange->usage.is_known) return exchange->usage.tokens;
    if (exchange->status >= 400) return 0;
    if (exchange->status == 0 || exchange->is_events)
        return exchange->prompt_tokens + exchange->usage.events;
    return request->tally.tokens;
}

void lm_upstream_settle(struct lm_io *io, uint32_t slot) {
    struct lm_request *request = &io->requests[slot];
    lm_slots_settle(request, tokens_of(lm_exchange_of(io, slot), request));
}

static void log_end(struct lm_io *io, const struct lm_request *request, uint32_t code,
                    bool is_span_alone) {
    lm_access_log_own(io, request,
                      &(struct lm_access_own){.kind = LUMEN_SPAN_UPSTREAM,
                                              .sent_ns = lm_now_ns(),
                                              .code = code,
                                              .is_span_alone = is_span_alone});
}

/* The request is the upstream's no more. */
static void end(struct lm_io *io, uint32_t slot) {
    const struct lm_exchange *exchange = lm_exchange_of(io, slot);
    struct lm_connection *client = lm_exchange_client(io, slot);
    client->in.call.exchange = 0;
    client->in_flight--;
    if (io->requests[slot].last) client->close_after_reply = true;
    count(io, exchange->upstream, -1);
    class_of(io, io->requests[slot].slot)->lent_count--;
    lm_connection_mark(io, client);
}

/* ---- good ends ---- */

void lm_upstream_finish(struct lm_io *io, uint32_t slot, enum lm_outcome outcome) {
    struct lm_exchange *exchange = lm_exchange_of(io, slot);
    struct lm_request *request = &io->requests[slot];
    struct lm_link *link = &io->upstream->links[exchange->link];
    const bool is_sent = outcome == LM_OUTCOME_SENT;
    request->status = LM_STATUS_OK;
    record(io, request, &io->stats->io.upstream_ok, is_sent);
    log_end(io, request, exchange->status, false);
    health_of(io, link)->busy--;
    link->slot = LM_NO_SLOT;
    end(io, slot);
    if (is_sent) lm_slots_release(io, request); /* else when the rest of it is */
    lm_upstream_finished(io, link);
}

/* ---- bad ends ---- */

static void describe(const struct lm_io *io, const struct lm_link *link,
                     struct lm_upstream_failure *failure) {
    const char *name = lm_upstream_at(io, link->upstream)->name;
    const struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    const bool has_begun = exchange->head_passed;
    char *why = failure->why;
    const size_t room = sizeof failure->why;
    *failure = (struct lm_upstream_failure){.code = 502};
    switch ((enum lm_link_fault)link->fault) {
    case LM_FAULT_CLOSED:
        failure->is_died = failure->is_elsewhere = !link->has_answered;
        snprintf(why, room, "upstream '%s' closed the connection %s", name,
                 has_begun ? "in the middle of its answer" : "and gave no whole answer");
        break;
    case LM_FAULT_UNDIALED:
        failure->is_elsewhere = true;
        snprintf(why, room, "upstream '%s' cannot be reached: %s", name, strerror(link->refusal));
        break;
    case LM_FAULT_DIALED_LATE:
        failure->code = 504;
        failure->is_elsewhere = true;
        snprintf(why, room, "upstream '%s' did not accept a connection in time (timeouts.connect)",
                 name);
        break;
    case LM_FAULT_SILENT:
        failure->code = 504;
        snprintf(why, room, "upstream '%s' %s", name,
                 has_begun ? "said nothing more for too long (timeouts.silence)"
                           : "gave no answer in time (timeouts.first_byte)");
        break;
    case LM_FAULT_LATE:
        failure->code = 504;
        snprintf(why, room,
                 "upstream '%s' did not finish its answer in time (timeouts.total, or the "
                 "request's own deadline)",
                 name);
        break;
    case LM_FAULT_GARBAGE:
        snprintf(why, room, "upstream '%s': %.400s", name, exchange->event);
        break;
    case LM_FAULT_UNTRUSTED:
        failure->is_elsewhere = true;
        snprintf(why, room, "upstream '%s': %.400s", name, io->upstream->untrusted);
        break;
    case LM_FAULT_RESET:
        failure->is_elsewhere = !link->has_answered;
        snprintf(why, room, "upstream '%s' reset the request %s(HTTP/2: error %d)", name,
                 has_begun ? "in the middle of its answer " : "", link->refusal);
        break;
    case LM_FAULT_PASSED_OVER:
        failure->is_elsewhere = true;
        failure->code = 503;
        snprintf(why, room, "upstream '%s' takes no requests now", name);
        break;
    }
}

/* Its client has left. */
static void leave(struct lm_io *io, uint32_t slot) {
    struct lm_request *request = &io->requests[slot];
    lm_add_single_writer_u64(&io->stats->io.requests_gone, 1);
    lm_add_single_writer_u64(&io->stats->io.upstream_gone, 1);
    lm_add_single_writer_u64(&io->stats->models[request->model->index].io.model_gone, 1);
    if (lm_exchange_of(io, slot)->is_sent) lm_upstream_settle(io, slot);
    end(io, slot);
    lm_slots_release(io, request);
}

/* The client has no byte of an answer. */
static void fail(struct lm_io *io, uint32_t slot, lm_atomic_u64 *as) {
    struct lm_request *request = &io->requests[slot];
    request->status = LM_STATUS_INFERENCE_FAILED;
    if (request->inferred_ns < request->preprocessed_ns)
        request->inferred_ns = request->preprocessed_ns;
    record(io, request, as, true);
    lm_slots_settle(request, 0);
    end(io, slot);
}

void lm_upstream_give_up(struct lm_io *io, uint32_t slot) {
    fail(io, slot, &io->stats->io.upstream_fallen);
}

void lm_upstream_tell(struct lm_io *io, uint32_t slot, const struct lm_upstream_failure *failure) {
    struct lm_request *request = &io->requests[slot];
    struct lm_connection *client = lm_exchange_client(io, slot);
    const uint8_t route = request->wish.route;
    fail(io, slot, &io->stats->io.upstream_failed);
    log_end(io, request, failure->code, true); /* its refusal has a line */
    lm_slots_release(io, request);
    lm_http_answer_error(io, client, failure->code, lm_http_retry_lines(route, failure->code),
                         failure->why);
}

enum lm_outcome lm_upstream_say(struct lm_io *io, uint32_t slot, size_t bytes, bool is_last) {
    static const char end[] = "\r\n0\r\n\r\n";
    struct lm_exchange *exchange = lm_exchange_of(io, slot);
    struct lm_request *request = &io->requests[slot];
    const bool is_chunked = exchange->framing == LM_EXCHANGE_BY_CHUNKS;
    uint32_t parts = 0;
    if (is_chunked) {
        const int line = snprintf(exchange->line, sizeof exchange->line, "%zx\r\n", bytes);
        exchange->parts[parts++] = (struct iovec){exchange->line, (size_t)line};
    }
    exchange->parts[parts++] = (struct iovec){exchange->event, bytes};
    if (is_chunked)
        exchange->parts[parts++] = (struct iovec){(void *)(uintptr_t)end, is_last ? 7 : 2};
    request->message = (struct msghdr){.msg_iov = exchange->parts, .msg_iovlen = parts};
    request->in_pieces = !is_last;
    return lm_reply_piece(io, lm_exchange_client(io, slot), request, false);
}

/* The client has the beginning of an answer: a stream of events ends with one that says why, any
 * other answer is cut. */
static void cut(struct lm_io *io, uint32_t slot, const char *why) {
    struct lm_exchange *exchange = lm_exchange_of(io, slot);
    struct lm_request *request = &io->requests[slot];
    struct lm_connection *client = lm_exchange_client(io, slot);
    enum lm_outcome outcome = LM_OUTCOME_BROKEN;
    lm_upstream_settle(io, slot);
    request->status = LM_STATUS_INFERENCE_FAILED;
    if (exchange->is_events && exchange->framing != LM_EXCHANGE_BY_LENGTH) {
        char text[LM_TEXT_BYTES_MAX];
        size_t written = 0;
        (void)lm_json_escape(why, strlen(why), text, sizeof text, &written);
        const int bytes =
            snprintf(exchange->event, sizeof exchange->event,
                     "%sdata: {\"error\":{\"message\":\"%.*s\",\"type\":\"server_error\","
                     "\"param\":null,\"code\":null}}\n\n",
                     exchange->at_rest ? "" : "\n\n", (int)written, text);
        outcome = lm_upstream_say(io, slot, (size_t)bytes, true);
    }
    if (outcome != LM_OUTCOME_SENT && outcome != LM_OUTCOME_PARTIAL)
        lm_connection_abort(io, client);
    record(io, request, &io->stats->io.upstream_failed, outcome != LM_OUTCOME_PARTIAL);
    log_end(io, request, 0, false);
    end(io, slot);
    if (outcome == LM_OUTCOME_PARTIAL) {
        lm_reply_rest(io, client, request); /* which releases its slot */
    } else {
        lm_slots_release(io, request);
    }
}

/* Another address, or a new link to the same one. false: there is none. */
static bool ask_again(struct lm_io *io, uint32_t slot, const struct lm_link *link,
                      const struct lm_upstream_failure *failure) {
    struct lm_exchange *exchange = lm_exchange_of(io, slot);
    if (io->now_ns >= exchange->until_ns) return false;
    if (failure->is_died && link->is_used && !exchange->is_renewed) {
        exchange->is_renewed = true;
        lm_add_single_writer_u64(&io->stats->io.upstream_retries, 1);
        return lm_upstream_ask(io, slot, link->address, true);
    }
    const bool may = link->fault == LM_FAULT_PASSED_OVER
                         ? exchange->may_go_on
                         : failure->is_elsewhere && !exchange->is_retried;
    if (!may) return false;
    const uint32_t address = lm_upstream_choose(io, link->upstream, exchange->tried);
    if (address == LM_NO_ADDRESS_LEFT) return false;
    if (link->fault != LM_FAULT_PASSED_OVER && !lm_upstream_may_retry(io, link->upstream))
        return false;
    exchange->is_retried = true;
    exchange->tried |= 1u << address;
    lm_add_single_writer_u64(&io->stats->io.upstream_retries, 1);
    return lm_upstream_ask(io, slot, address, false);
}

bool lm_upstream_lose(struct lm_io *io, struct lm_link *link, struct lm_upstream_failure *failure) {
    const uint32_t slot = link->slot;
    struct lm_exchange *exchange = lm_exchange_of(io, slot);
    /* relaxed: this thread's own */
    const bool is_gone = lm_load_relaxed_u32(&lm_exchange_client(io, slot)->gone);
    describe(io, link, failure);
    const bool is_at_fault = link->fault != LM_FAULT_PASSED_OVER && link->fault != LM_FAULT_LATE &&
                             !(failure->is_died && link->is_used) && !is_gone;
    if (is_at_fault) lm_upstream_failed(io, link->upstream, link->address);
    health_of(io, link)->busy--;
    link->slot = LM_NO_SLOT;
    if (lm_upstream_yield(io, link, slot)) return true;
    exchange->link = LM_NO_LINK;
    if (is_gone) {
        leave(io, slot);
    } else if (exchange->head_passed) {
        cut(io, slot, failure->why);
    } else {
        return ask_again(io, slot, link, failure);
    }
    return true;
}

bool lm_upstream_goes_on(struct lm_io *io, const struct lm_link *link,
                         const struct lm_http_response *response) {
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    const uint32_t status = response->status;
    const bool is_busy = response->retry_after && (status == 503 || status == 429);
    const bool is_bad = status == 502 || status == 504 || (status == 503 && !is_busy);
    if (is_bad) lm_upstream_failed(io, link->upstream, link->address);
    if (!is_bad && !is_busy) lm_upstream_succeeded(io, link->upstream, link->address);
    if ((is_bad || is_busy) && lm_upstream_rival(io, link)) return true;
    exchange->may_go_on =
        (is_bad || is_busy) && !exchange->is_retried &&
        lm_upstream_choose(io, link->upstream, exchange->tried) != LM_NO_ADDRESS_LEFT &&
        lm_upstream_may_retry(io, link->upstream);
    return exchange->may_go_on ||
           ((is_bad || is_busy) && lm_upstream_has_next_model(io, link->slot));
}

bool lm_upstream_start(struct lm_io *io, uint32_t slot, struct lm_upstream_failure *failure) {
    struct lm_exchange *exchange = lm_exchange_of(io, slot);
    const uint32_t address = lm_upstream_choose(io, exchange->upstream, 0);
    exchange->tried = 1u << address;
    if (lm_upstream_ask(io, slot, address, false)) return true;
    failure->code = 503;
    snprintf(failure->why, sizeof failure->why, "upstream '%s' cannot be reached: %s",
             lm_upstream_at(io, exchange->upstream)->name, strerror(errno));
    return false;
}
