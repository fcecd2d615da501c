/* http2.c: see http2.h. */
#include "dialects/http2.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dialects/http2_place.h"
#include "dialects/http2_put.h"
#include "dialects/http2_receive.h"
#include "dialects/http2_send.h"
#include "dialects/http2_shelf.h"
#include "dialects/http2_streams.h"
#include "dialects/http_block.h"
#include "flow/timers.h"
#include "wire/inflate.h"

int lm_http2_open(struct lm_io *io, uint32_t connections) {
    struct lm_http2_side *side = calloc(1, sizeof *side);
    io->http2 = side;
    if (!side) return lm_error(LUMEN_E_NOMEM, "no memory for HTTP/2");
    side->count = connections < LM_HTTP2_CONNECTIONS_MAX ? connections : LM_HTTP2_CONNECTIONS_MAX;
    int code = lm_mapping_reserve(&side->entries_memory, side->count * sizeof *side->entries);
    if (!code) code = lm_mapping_reserve(&side->busy_memory, side->count * sizeof *side->free_busy);
    if (!code)
        code = lm_mapping_reserve(&side->tables_memory, side->count * sizeof *side->free_table);
    if (!code) code = lm_http2_shelves_open(&side->shelves);
    if (!code) code = lm_inflater_open(&side->inflater);
    if (code) return lm_error(LUMEN_E_NOMEM, "no memory for a table of connections of HTTP/2");
    side->entries = side->entries_memory.base;
    side->free = LM_NO_CONNECTION;
    return 0;
}

void lm_http2_close(struct lm_io *io) {
    if (!io->http2) return;
    lm_inflater_close(io->http2->inflater);
    lm_mapping_close(&io->http2->entries_memory);
    lm_mapping_close(&io->http2->busy_memory);
    lm_mapping_close(&io->http2->tables_memory);
    lm_http2_shelves_close(&io->http2->shelves);
    free(io->http2);
    io->http2 = NULL;
}

/* ---- a connection's entry ---- */

/* The server's settings: no table, no push, streams and their windows. */
static void greet(struct lm_http2_carrier *http2) {
    static const struct lm_http2_setting settings[] = {
        {LM_HTTP2_HEADER_TABLE_SIZE, 0},
        {LM_HTTP2_MAX_CONCURRENT_STREAMS, LM_HTTP2_STREAMS_MAX},
        {LM_HTTP2_INITIAL_WINDOW_SIZE, LM_HTTP2_STREAM_WINDOW},
        {LM_HTTP2_MAX_FRAME_SIZE, LM_HTTP2_FRAME_MAX},
        {LM_HTTP2_MAX_HEADER_LIST_SIZE, LM_HTTP_HEAD_BYTES_MAX},
    };
    uint8_t payload[sizeof settings / sizeof settings[0] * LM_HTTP2_SETTING_BYTES];
    for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++)
        lm_http2_write_setting(payload + s * LM_HTTP2_SETTING_BYTES, settings[s]);
    lm_http2_put(http2, LM_HTTP2_SETTINGS, 0, 0, payload, sizeof payload);
    lm_http2_put_number(http2, LM_HTTP2_WINDOW_UPDATE, 0,
                        LM_HTTP2_CONNECTION_WINDOW - LM_HTTP2_WINDOW);
}

static struct lm_http2_carrier *take_entry(struct lm_io *io, struct lm_connection *carrier) {
    struct lm_http2_side *side = io->http2;
    uint32_t index = side->free;
    if (index == LM_NO_CONNECTION && side->used == side->count) return NULL;
    if (index == LM_NO_CONNECTION) {
        index = side->used++;
    } else {
        side->free = side->entries[index].next_free;
    }
    struct lm_http2_carrier *http2 = &side->entries[index];
    struct lm_http2_table *table = side->free_table;
    if (table) {
        side->free_table = table->next_free;
    } else {
        table = (struct lm_http2_table *)side->tables_memory.base + side->tables_used++;
    }
    *http2 = (struct lm_http2_carrier){
        .connection = carrier->index,
        .side = side,
        .send_window = LM_HTTP2_WINDOW,
        .recv_window = LM_HTTP2_CONNECTION_WINDOW,
        .initial_window = LM_HTTP2_WINDOW,
        .frame_max = LM_HTTP2_FRAME_MIN,
        .preface_at = LM_NATIVE_MAGIC_BYTES, /* which greeting.c has read */
        .hpack = {
            .table = &table->table, .size = LM_HPACK_TABLE_BYTES, .limit = LM_HPACK_TABLE_BYTES}};
    carrier->in.carried = index;
    carrier->in.read_state = LM_READ_PROLOGUE;
    carrier->in.header_used = 0;
    greet(http2);
    return http2;
}

/* It has nothing to do until its client, or a stream's answer, says something. */
static void rest(struct lm_http2_carrier *http2) {
    struct lm_http2_busy *busy = http2->busy;
    if (!busy || http2->open || http2->sends || busy->control_used) return;
    busy->next_free = http2->side->free_busy;
    http2->side->free_busy = busy;
    http2->busy = NULL;
}

static void give_entry(struct lm_io *io, struct lm_connection *carrier) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    if (http2->busy) http2->busy->control_used = 0; /* nobody hears it any more */
    rest(http2);
    lm_http2_give_table(http2);
    http2->next_free = io->http2->free;
    io->http2->free = carrier->in.carried;
    carrier->in.carried = LM_NO_CONNECTION;
}

/* ---- the preface, and frames ---- */

static size_t take_preface(struct lm_http2_carrier *http2, const uint8_t *bytes, size_t count) {
    const size_t missing = (size_t)(LM_HTTP2_PREFACE_BYTES - http2->preface_at);
    const size_t taken = count < missing ? count : missing;
    if (memcmp(bytes, LM_HTTP2_PREFACE + http2->preface_at, taken) != 0)
        lm_http2_fail(http2, LM_HTTP2_PROTOCOL_ERROR, "expected the preface of HTTP/2");
    http2->preface_at = (uint8_t)(http2->preface_at + taken);
    http2->is_greeted = http2->preface_at == LM_HTTP2_PREFACE_BYTES;
    return taken;
}

static size_t take(struct lm_io *io, struct lm_connection *carrier, const uint8_t *bytes,
                   size_t count) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    if (!http2) http2 = take_entry(io, carrier);
    if (!http2) {
        lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
        lm_connection_abort(io, carrier);
        return count;
    }
    if (http2->has_failed) return count;
    if (!lm_http2_has_room(http2)) return 0; /* its client reads nothing, and is not read either */
    const size_t taken = http2->is_greeted ? lm_http2_take_frame(io, carrier, bytes, count)
                                           : take_preface(http2, bytes, count);
    if (taken > 0) lm_connection_mark(io, carrier); /* there may be something to say */
    return taken;
}

/* ---- the life of the connection ---- */

/* So long a client has to hear that it is to go elsewhere, where it sends nothing. */
static const uint64_t notice_ns = 1000000000ull;
static const char the_end[] = "the server ends", the_age[] = "server.max_connection_age_seconds";

/* Goes on with its streams, sends what there is, and ends it behind the last. */
static void carry(struct lm_io *io, struct lm_connection *carrier) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    if (!http2) return;
    if (io->draining) lm_http2_put_goaway(http2, LM_HTTP2_NO_ERROR, the_end);
    /* A client that has just connected may find no other server yet: it is answered first. */
    if (lm_shared_is_leaving(io->shared) && http2->last_stream)
        lm_http2_put_notice(http2, io->now_ns, the_end);
    if (lm_connection_is_old(io, carrier)) lm_http2_put_notice(http2, io->now_ns, the_age);
    lm_http2_streams_look(io, carrier);
    /* relaxed: this thread's own */
    if (!lm_load_relaxed_u32(&carrier->gone)) lm_http2_flush(io, carrier);
    if (http2->has_failed || http2->is_cut)
        lm_http2_streams_drop(io, carrier, http2->is_cut && !http2->has_failed);
    const bool is_over = http2->has_failed || (http2->is_closing && http2->open == 0);
    const bool has_said = !http2->sends && (!http2->busy || http2->busy->control_used == 0);
    if (is_over && has_said && !carrier->ended && carrier->in.read_state == LM_READ_PROLOGUE)
        lm_connection_linger(io, carrier, 0);
    rest(http2);
    if (!carrier->ended) return;
    if (http2->open == 0 && !http2->sends) give_entry(io, carrier);
}

static uint64_t deadline_ns(const struct lm_io *io, const struct lm_connection *carrier) {
    const struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const bool is_body =
        http2 && http2->reader.in_frame && http2->reader.frame.type == LM_HTTP2_DATA;
    if (!http2) return 0;
    if (http2->sends) return lm_timer_after(http2->sent_ns, io->shared->reply_timeout_ns);
    if (http2->is_cut) return 0; /* its streams have their own */
    if (!http2->is_greeted || http2->reader.header_used || http2->reader.block_of ||
        (http2->reader.in_frame && !is_body))
        return lm_timer_after(carrier->in.started_ns, io->shared->header_timeout_ns);
    if (http2->open > http2->watched) return 0;
    const uint64_t idle_ns =
        http2->watched ? 0 : lm_timer_after(io->now_ns, io->shared->idle_timeout_ns);
    const uint64_t until_ns =
        http2->noticed_ns ? http2->noticed_ns + notice_ns : lm_connection_old_ns(io, carrier);
    return until_ns && (until_ns < idle_ns || !idle_ns) ? until_ns : idle_ns;
}

static void give_up(struct lm_io *io, struct lm_connection *carrier, enum lm_status status,
                    const char *why) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const uint64_t sent_by_ns =
        http2 && http2->sends ? lm_timer_after(http2->sent_ns, io->shared->reply_timeout_ns) : 0;
    (void)status;
    if (!http2 || (sent_by_ns && io->now_ns >= sent_by_ns)) {
        lm_connection_abort(io, carrier);
        return;
    }
    if (!http2->noticed_ns && http2->open == http2->watched && lm_connection_is_old(io, carrier)) {
        lm_connection_mark(io, carrier); /* `carry` says so */
        return;
    }
    const bool is_idle = http2->is_greeted && !http2->reader.header_used &&
                         !http2->reader.in_frame && !http2->reader.block_of;
    http2->is_cut = true;
    if (is_idle) why = http2->noticed_ns ? "as announced" : "idle for too long";
    lm_http2_put_goaway(http2, LM_HTTP2_NO_ERROR, why);
    lm_connection_mark(io, carrier);
}

static uint32_t key(const struct lm_io *io, const struct lm_connection *carrier) {
    (void)io;
    (void)carrier;
    return LM_NO_KEY;
}

const struct lm_dialect lm_http2 = {.name = "http2",
                                    .take = take,
                                    .prologue_deadline_ns = deadline_ns,
                                    .forget = lm_http_block_give,
                                    .give_up = give_up,
                                    .key = key,
                                    .carry = carry,
                                    .place = lm_http2_place,
                                    .placed = lm_http2_placed,
                                    .sent = lm_http2_sent,
                                    .is_http = true};
