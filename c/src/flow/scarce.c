/* scarce.c: slots while there are few: who gets one, who waits for what, who makes room. I/O thread
 * only.
 *
 * A body is received straight into its slot, so a client that announces one and sends it slowly
 * would hold the slot meanwhile. While slots are plenty it may. The last quarter of each class, and
 * of max_in_flight, goes to requests whose bytes are here: all of the body, or LM_HERE_BYTES of it.
 * A request that finds only those left, and has not come that far, waits for its bytes, not for a
 * slot (LM_LIST_EXPECTING): the kernel keeps them, says when there are enough (SO_RCVLOWAT), and
 * costs the server nothing until then. So the requests of clients that send always find a slot, or
 * wait for workers alone, however many do not. Where the kernel takes no more of a body than a part
 * (a new connection's buffer is small), it waits for a slot that can be spared.
 *
 * What a whole request holds is given back when its reply is read. When less than the reserve is
 * free, who holds a slot and hardly moves loses it. Nothing here runs while there are slots to
 * spare.
 */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/error.h"
#include "dialects/http.h"
#include "flow/access_log.h"

static const char crowded[] = "all slots are taken and too many requests wait for one";

/* ---- waiting for bytes ---- */

/* Of the body, from what came with the header on; at least, where it is chunked. */
uint64_t lm_scarce_bytes_expected(const struct lm_connection *connection) {
    if (connection->dialect == LM_DIALECT_HTTP)
        return connection->call.chunked ? 1 : connection->discard_bytes;
    struct lm_native_request request;
    char unused[LM_TEXT_BYTES_MAX];
    lm_native_parse(connection->header, &request, unused, sizeof unused);
    return LM_NATIVE_REQUEST_BYTES + request.payload_bytes - connection->header_used;
}

/* How many bytes must be in the socket before a slot is worth it; 0: as many as that are here. */
static int bytes_wanted(const struct lm_connection *connection) {
    uint64_t wanted = lm_scarce_bytes_expected(connection), have = 0;
    int in_socket = 0;
    if (wanted > LM_HERE_BYTES) wanted = LM_HERE_BYTES;
    if (connection->buffer != LM_NO_BUFFER)
        have = (uint64_t)(connection->buffer_end - connection->buffer_at);
    if (have >= wanted) return 0;
    wanted -= have;
    bool here = ioctl(connection->fd, FIONREAD, &in_socket) == 0 && in_socket >= (int)wanted;
    return here ? 0 : (int)wanted;
}

/* How many bytes make the socket readable. The kernel makes room for so many, up to its own limit,
 * where the socket is readable all the same. */
static void set_low_mark(const struct lm_connection *connection, int bytes) {
    (void)setsockopt(connection->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

/* The connection goes on where its caller goes on with it. */
static void turn_away(struct lm_io *io, struct lm_connection *connection, enum lm_status status,
                      const char *why) {
    if (connection->recv_armed) set_low_mark(connection, 1); /* what is refused is read, too */
    lm_admit_refuse_waiting(io, connection, status, why);
}

static bool too_many_wait(const struct lm_io *io) {
    uint32_t held = io->lists[LM_LIST_WAITING].count + io->lists[LM_LIST_WAITING_PART].count +
                    io->lists[LM_LIST_EXPECTING_HELD].count;
    return held > LM_SLOT_WAITERS_MAX;
}

/* Who was promised to wait may, while its bytes come. */
static bool may_turn_away(const struct lm_io *io, const struct lm_connection *connection) {
    if (io->shared->overload == LUMEN_OVERLOAD_REFUSE) return true;
    return io->now_ns > connection->started_ns + LM_STALL_MS * 1000000ull;
}

/* Those who wait may hold header buffers, and when these run out nothing more is read. Whoever has
 * waited longest for bytes that do not come makes room. */
static void bound_waiting(struct lm_io *io, const struct lm_connection *own) {
    const struct lm_list *held = &io->lists[LM_LIST_EXPECTING_HELD];
    if (held->head == LM_NO_CONNECTION) held = &io->lists[LM_LIST_WAITING_PART];
    if (!too_many_wait(io) || held->head == LM_NO_CONNECTION) return;
    struct lm_connection *oldest = lm_io_connection(io, held->head);
    if (!may_turn_away(io, oldest)) return;
    turn_away(io, oldest, LM_STATUS_OVERLOADED, crowded);
    if (oldest == own) return;
    lm_receive_continue(io, oldest);
    lm_connection_settle(io, oldest);
}

static void wait_for_bytes(struct lm_io *io, struct lm_connection *connection, int wanted) {
    bool holds = connection->buffer != LM_NO_BUFFER || connection->block != LM_NO_BLOCK;
    lm_add_single_writer_u64(&io->stats->io.body_waits, 1);
    set_low_mark(connection, wanted);
    lm_ring_poll(io->ring, connection->fd, connection->index, connection->generation);
    connection->recv_armed = true;
    lm_connection_move(io, connection, holds ? LM_LIST_EXPECTING_HELD : LM_LIST_EXPECTING);
    bound_waiting(io, connection);
}

/* ---- waiting for a slot ---- */

void lm_scarce_retry(struct lm_io *io, struct lm_connection *connection) {
    if (connection->dialect == LM_DIALECT_HTTP) {
        lm_http_retry(io, connection);
    } else {
        lm_admit(io, connection);
    }
}

/* Its bytes are here: a slot, now or when one comes back; where the kernel takes no more of them,
 * one that can be spared. */
static void wait_for_slot(struct lm_io *io, struct lm_connection *connection,
                          enum lm_connection_list list) {
    if (list == LM_LIST_WAITING) {
        lm_gate_wait(io, connection);
    } else {
        lm_connection_move(io, connection, list);
    }
    lm_scarce_retry(io, connection);
    if (!lm_connection_waits(connection)) return;
    lm_add_single_writer_u64(&io->stats->io.slot_waits, 1);
    bound_waiting(io, connection);
    bool still = lm_connection_waits(connection);
    if (still && too_many_wait(io) && io->shared->overload == LUMEN_OVERLOAD_REFUSE)
        turn_away(io, connection, LM_STATUS_OVERLOADED, crowded);
}

void lm_scarce_look(struct lm_io *io, struct lm_connection *connection) {
    bool asks_first = connection->dialect == LM_DIALECT_HTTP && connection->call.expects_continue;
    int wanted = asks_first ? 0 : bytes_wanted(connection);
    if (wanted) {
        wait_for_bytes(io, connection, wanted);
    } else {
        wait_for_slot(io, connection, LM_LIST_WAITING);
    }
}

void lm_scarce_readable(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    LM_ASSERT(connection->generation == completion->generation && connection->recv_armed);
    bool again = completion->result == -EINTR || completion->result == -EAGAIN;
    connection->recv_armed = false;
    if (connection->ended) {
        lm_connection_end(io, connection);
    } else if (completion->result < 0 && !again) {
        lm_connection_abort(io, connection);
    } else {
        if (lm_connection_expects(connection)) {
            set_low_mark(connection, 1);
            bool is_part = !again && bytes_wanted(connection) > 0;
            if (!again)
                wait_for_slot(io, connection, is_part ? LM_LIST_WAITING_PART : LM_LIST_WAITING);
        }
        lm_receive_continue(io, connection);
    }
    lm_connection_settle(io, connection);
}

/* A kernel that took no more may have taken more since. */
static void retry_parts(struct lm_io *io) {
    uint32_t next;
    for (uint32_t i = io->lists[LM_LIST_WAITING_PART].head; i != LM_NO_CONNECTION; i = next) {
        struct lm_connection *connection = lm_io_connection(io, i);
        if (connection->list != LM_LIST_WAITING_PART) break; /* made room for one before it */
        next = connection->next;
        if (bytes_wanted(connection) == 0) lm_gate_wait(io, connection);
        lm_scarce_retry(io, connection);
        if (lm_connection_waits(connection)) continue;
        lm_receive_continue(io, connection);
        lm_connection_settle(io, connection);
    }
}

void lm_scarce_expire(struct lm_io *io, struct lm_connection *connection) {
    if (connection->timer_ns <= io->now_ns) {
        turn_away(io, connection, LM_STATUS_DEADLINE,
                  "the deadline passed before the request's bytes were here and a slot was free");
    } else {
        turn_away(io, connection, LM_STATUS_OVERLOADED,
                  "slots are few, and the rest of the request did not come in time");
    }
    lm_receive_continue(io, connection);
}

/* ---- making room ---- */

/* How far a connection's client has come, by what the kernel has of it. false: it does not say. */
static bool progress(const struct lm_connection *connection, bool sending, uint64_t *bytes_out) {
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    *bytes_out = sending ? info.tcpi_bytes_acked : info.tcpi_bytes_received;
    return true;
}

static bool is_slow(const struct lm_io *io, const struct lm_connection *connection,
                    struct lm_request *request, bool sending) {
    uint64_t bytes = 0;
    if (!progress(connection, sending, &bytes)) {
        uint64_t allowed_ms = LM_STALL_MS + request->slot->bytes / LM_STALL_BYTES_PER_MS;
        return io->now_ns > request->held_ns + allowed_ms * 1000000ull;
    }
    if (request->seen_ns == 0 || bytes >= request->seen_bytes + LM_SLOW_WINDOW_BYTES) {
        request->seen_ns = io->now_ns;
        request->seen_bytes = bytes;
        return false;
    }
    return io->now_ns > request->seen_ns + LM_SLOW_WINDOW_MS * 1000000ull;
}

/* Says so where a reply may be said: in the middle of one it may not. */
static void cut_off(struct lm_io *io, struct lm_connection *connection,
                    const struct lm_request *request) {
    static const char why[] =
        "the body came too slowly, and the slot it was received to was needed";
    bool may_say_so = connection->sending == LM_NO_SLOT && connection->reply_head == LM_NO_SLOT;
    lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
    connection->cut_short = LM_STATUS_OVERLOADED;
    if (may_say_so && connection->dialect == LM_DIALECT_HTTP && connection->in_flight == 0) {
        lm_http_give_up(io, connection, 503, why);
    } else if (may_say_so && connection->dialect == LM_DIALECT_NATIVE) {
        struct lm_native_reply reply = {.id = request->id, .status = LM_STATUS_OVERLOADED};
        lm_access_log_refused(io, connection, request, LM_STATUS_OVERLOADED, why);
        lm_reply_own(io, connection, &reply, why);
        lm_connection_end(io, connection);
    } else {
        lm_connection_abort(io, connection);
    }
    lm_connection_settle(io, connection);
}

/* How many slots each class lacks to its reserve, or all of them to that of max_in_flight; false:
 * nobody is hurt by it. */
static bool find_short(const struct lm_io *io, uint32_t lacks[LUMEN_SLOT_CLASSES_MAX]) {
    const struct lm_list *lists = io->lists;
    bool starved = lists[LM_LIST_STARVED].count || lists[LM_LIST_UNPARKING].count;
    bool found = starved;
    uint32_t places = lm_places_left(&io->shared->places);
    uint32_t reserve = lm_places_reserve(&io->shared->places);
    /* One more than the reserve is due where somebody waits for one that can be spared. */
    uint32_t parts = lists[LM_LIST_WAITING_PART].count > 0;
    bool waits = lists[LM_LIST_WAITING].count || lists[LM_LIST_EXPECTING].count || parts ||
                 lists[LM_LIST_EXPECTING_HELD].count || io->refused_full;
    for (uint32_t c = 0; c < io->arena.class_count; c++) {
        const struct lm_arena_class *class = &io->arena.classes[c];
        uint32_t due = class->reserve_count + (c == 0 ? 0 : parts);
        /* Own replies have no list to wait on. */
        bool is_short = class->free_count < due && (waits || c == 0);
        lacks[c] = starved ? UINT32_MAX : is_short ? due - class->free_count : 0;
        if (waits && places < reserve + parts && lacks[c] < reserve + parts - places)
            lacks[c] = reserve + parts - places;
        found = found || lacks[c] > 0;
    }
    return found;
}

void lm_scarce_evict(struct lm_io *io) {
    uint32_t lacks[LUMEN_SLOT_CLASSES_MAX];
    if (io->now_ns < io->next_eviction_ns) return;
    io->next_eviction_ns = io->now_ns + LM_EVICT_PERIOD_MS * 1000000ull;
    retry_parts(io);
    for (uint32_t n = 0; n < LM_SLOT_WAITERS_MAX && too_many_wait(io); n++) bound_waiting(io, NULL);
    bool is_short = find_short(io, lacks);
    io->refused_full = false;
    if (!is_short) return;
    lm_scarce_suspend(io);
    for (uint32_t s = 0; s < io->arena.slot_count; s++) {
        struct lm_request *request = &io->requests[s];
        uint32_t *lack = &lacks[io->arena.slots[s].class_index];
        if (!io->arena.slots[s].acquired || *lack == 0) continue;
        struct lm_connection *connection = lm_io_connection(io, request->connection);
        bool sending = connection->sending == s;
        if (connection->fd < 0 || lm_load_relaxed_u32(&connection->gone)) continue; /* own writes */
        if (!sending && (connection->receiving != s || connection->ended)) continue;
        if (!is_slow(io, connection, request, sending)) continue;
        (*lack)--;
        cut_off(io, connection, request);
    }
}

void lm_scarce_suspend(struct lm_io *io) {
    for (uint32_t s = 0; s < io->arena.slot_count; s++) {
        struct lm_request *request = &io->requests[s];
        if (!io->arena.slots[s].acquired || !request->model || request->with_worker) continue;
        if (lm_io_connection(io, request->connection)->receiving != s) continue;
        if (io->now_ns > request->held_ns + LM_SLOW_BODY_MS * 1000000ull)
            lm_gate_suspend(io, request);
    }
}
