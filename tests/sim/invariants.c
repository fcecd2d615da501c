/* invariants.c: what must be true of an I/O thread's state whenever it is about to wait, and of
 * everything when nobody is there. The words are those of tests' hostile-inputs list: one owner for
 * each slot, buffer (F9), block and entry; every connection has something that will move it on;
 * counters add up.
 */
#include <string.h>

#include "dialects/http2_state.h"
#include "dialects/http_block.h"
#include "flow/answer_cache.h"
#include "flow/io_model.h"
#include "flow/parking.h"
#include "sim.h"
#include "work/state.h"

enum { EMPTY_TURNS_MAX = 200, SLOTS_MAX = 512, CONNECTIONS_MAX = 300 };

static uint32_t empty_turns[2];
static uint64_t timed_out[2]; /* when the thread was last about to wait */
/* Whose each entry was when it was last looked at; no peer: the number after the last. */
static struct owner {
    uint32_t peer, generation;
} owners[2][CONNECTIONS_MAX];

/* The requests that waited for a slot when the thread was last about to wait, in their order. */
static struct waiter {
    uint32_t connection, kind; /* same kind: the same model and rows, so the same slots */
    uint64_t id, started_ns;   /* which of the connection's requests: two may begin at one time */
} waited[2][CONNECTIONS_MAX];
static uint32_t waited_count[2];

void check_reset(void) {
    waited_count[0] = waited_count[1] = 0;
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++)
        owners[0][i].peer = owners[1][i].peer = PEERS_MAX;
    timed_out[0] = timed_out[1] = 0;
    empty_turns[0] = empty_turns[1] = 0;
}

/* What the walk over the connections adds up. */
struct sums {
    uint32_t open, streams, shelved, parked, counted, lists[LM_LIST_COUNT];
    uint32_t buffers, blocks, pages;
    uint32_t unwhole; /* requests that count as such and are not whole */
};

/* Who has a slot, by the connections; and how many requests of a connection workers have. */
static bool held[SLOTS_MAX];
static uint32_t working[CONNECTIONS_MAX];

static void hold(const struct lm_io *io, uint32_t slot) {
    SIM_CHECK(io->requests[slot].slot->acquired && !held[slot] && !io->requests[slot].with_worker,
              "slot %u has two owners, or none", slot);
    held[slot] = true;
}

static bool sends_from(const struct msghdr *message, const void *memory, size_t bytes) {
    const uint8_t *base = memory;
    for (size_t p = 0; p < message->msg_iovlen; p++) {
        const uint8_t *at = message->msg_iov[p].iov_base;
        if (at >= base && at < base + bytes) return true;
    }
    return false;
}

void check_sent(const struct msghdr *message) {
    for (uint32_t i = 0; i < sim_shared.io_count; i++)
        SIM_CHECK(!sends_from(message, sim_shared.ios[i].scrap, LM_SCRAP_BYTES),
                  "what is sent lies where the kernel may write refused bytes at any time");
}

/* A worker gathers the next batch where the last one's outputs were. */
static void hold_reply(const struct lm_io *io, uint32_t slot) {
    hold(io, slot);
    for (uint32_t w = 0; w < sim_shared.worker_count; w++) {
        for (uint32_t m = 0; m < sim_models.count; m++) {
            const struct lm_batch *batch = sim_models.models[m]->batches[w];
            SIM_CHECK(!batch || !sends_from(&io->requests[slot].message, batch->memory.base,
                                            batch->memory.bytes),
                      "the reply in slot %u is sent from a batch's memory", slot);
        }
    }
}

static void hold_slots(const struct lm_io *io, const struct lm_connection *connection) {
    if (connection->in.receiving != LM_NO_SLOT) hold(io, connection->in.receiving);
    if (connection->sending != LM_NO_SLOT) hold_reply(io, connection->sending);
    for (uint32_t s = connection->reply_head; s != LM_NO_SLOT; s = io->requests[s].next_reply)
        hold_reply(io, s);
}

static bool carries(const struct lm_connection *connection) {
    return connection->dialect == LM_DIALECT_HTTP2;
}

/* A part of a body goes to a slot already. */
static bool is_chunked(const struct lm_connection *connection) {
    return connection->in.read_state == LM_READ_PROLOGUE && !carries(connection) &&
           connection->in.call.chunked && lm_http_is_inference(connection->in.call.route);
}

static void check_read_state(const struct lm_connection *connection) {
    uint32_t i = connection->index;
    bool waits = connection->in.read_state == LM_READ_WAIT;
    bool lingers = connection->in.read_state == LM_READ_LINGER && !connection->ended;
    SIM_CHECK(waits == (lm_connection_waits(connection) || lm_connection_expects(connection)),
              "connection %u: read state %u on list %u", i, connection->in.read_state,
              connection->list);
    bool replies = connection->in_flight > 0 || lm_connection_is_sending(connection);
    bool has_end = connection->write_shut && connection->list == LM_LIST_LINGERING;
    SIM_CHECK(!lingers || replies || has_end,
              "connection %u lingers without an end: it is on list %u", i, connection->list);
    SIM_CHECK(connection->write_shut || connection->list != LM_LIST_LINGERING,
              "connection %u is to end, and has replies to send", i);
    SIM_CHECK(!connection->ended || connection->buffer == LM_NO_BUFFER,
              "connection %u is ended and holds a buffer", i);
    /* The next message of a call is read, or waits for a slot, beside the reply before it. */
    bool reads_next =
        connection->dialect == LM_DIALECT_GRPC &&
        (connection->in.read_state == LM_READ_BODY || connection->in.read_state == LM_READ_WAIT);
    SIM_CHECK(!connection->close_after_reply || replies || connection->ended || reads_next,
              "connection %u goes on after its last reply", i);
    bool has_slot = connection->in.receiving != LM_NO_SLOT;
    bool takes_body = connection->in.read_state == LM_READ_BODY || is_chunked(connection);
    SIM_CHECK(has_slot == takes_body || connection->ended,
              "connection %u: read state %u with slot %u", i, connection->in.read_state,
              connection->in.receiving);
}

/* Something will move an open connection on, whatever its client does. */
static void check_alive(const struct lm_io *io, const struct lm_connection *connection) {
    SIM_CHECK(!connection->ended || ring_will_end(io->ring, connection->index),
              "connection %u is at its end, and receives for ever", connection->index);
    SIM_CHECK(!lm_connection_expects(connection) || connection->recv_armed,
              "connection %u waits for bytes that nobody looks for", connection->index);
    bool holds = connection->buffer != LM_NO_BUFFER || connection->in.block != LM_NO_BLOCK;
    SIM_CHECK(!lm_connection_expects(connection) ||
                  holds == (connection->list == LM_LIST_EXPECTING_HELD),
              "connection %u is on the wrong list of those who wait for bytes", connection->index);
    bool replies = connection->sending != LM_NO_SLOT || connection->reply_head != LM_NO_SLOT;
    bool busy = connection->in_flight > 0 || replies;
    bool moved = connection->recv_armed || busy || lm_connection_waits(connection) ||
                 connection->list == LM_LIST_STARVED || connection->list == LM_LIST_UNPARKING ||
                 connection->list == LM_LIST_RESUMING;
    moved |= lm_connection_is_stream(connection); /* its carrier, which is looked at too */
    SIM_CHECK(moved, "connection %u is stuck: nothing is armed, read state %u, ended %u",
              connection->index, connection->in.read_state, connection->ended);
    SIM_CHECK(connection->reply_head == LM_NO_SLOT || connection->sending != LM_NO_SLOT ||
                  connection->in_flight > 0,
              "connection %u has replies that nobody sends", connection->index);
    if (connection->buffer == LM_NO_BUFFER) return;
    bool expects = lm_connection_expects(connection); /* beside which it may wait for more */
    if (carries(connection)) return;                  /* whose client reads nothing */
    bool wants_descriptor = connection->list == LM_LIST_UNPARKING;
    SIM_CHECK(!connection->recv_armed || connection->list == LM_LIST_EXPECTING_HELD,
              "connection %u reads beside a held buffer", connection->index);
    SIM_CHECK(lm_connection_waits(connection) || expects || wants_descriptor ||
                  connection->list == LM_LIST_RESUMING || !lm_connection_may_parse(io, connection),
              "connection %u holds a buffer that it could parse", connection->index);
}

/* Who waits for this thread alone is not timed out meanwhile; who waits for a slot is. */
static void check_patience(const struct lm_io *io, const struct lm_connection *connection) {
    bool waits = connection->list == LM_LIST_UNPARKING ||
                 (connection->list == LM_LIST_STARVED && connection->in.header_used == 0);
    SIM_CHECK(!waits || connection->sending != LM_NO_SLOT || io->deadlines[connection->index] == 0,
              "connection %u waits for this server, and has a deadline", connection->index);
    SIM_CHECK(connection->list != LM_LIST_WAITING ||
                  connection->timer_ns > io->now_ns - LM_WAITING_NS,
              "connection %u waits for a slot, and its deadline has passed", connection->index);
}

/* What its socket was told, and who may have the entry next. */
static void check_socket(const struct lm_io *io, const struct lm_connection *connection) {
    uint32_t i = connection->index;
    bool gone = lm_load_relaxed_u32(&connection->gone);
    SIM_CHECK(!gone || connection->reply_head == LM_NO_SLOT,
              "connection %u is gone, and holds replies", i);
    if (connection->fd == LM_FD_PARKED || lm_connection_is_stream(connection)) return;
    const struct peer *peer = peer_of(connection->fd);
    SIM_CHECK(!connection->write_shut || peer->shut_wr,
              "connection %u has written its last, and does not say so", i);
    SIM_CHECK(!peer->shut_wr || connection->write_shut || gone,
              "connection %u may not write, and is not told", i);
    SIM_CHECK(lm_connection_expects(connection) || connection->ended || peer->low_mark <= 1,
              "connection %u hears of %u bytes, not of one", i, peer->low_mark);
    struct owner *owner = &owners[io->index][i];
    SIM_CHECK(owner->peer == PEERS_MAX || owner->peer == peer->number ||
                  owner->generation != connection->generation,
              "connection %u has its last owner's generation", i);
    *owner = (struct owner){.peer = peer->number, .generation = connection->generation};
}

static bool has_begun(const struct lm_io *io, const struct waiter *waiter) {
    for (uint32_t s = 0; s < io->arena.slot_count; s++) {
        const struct lm_request *request = &io->requests[s];
        if (io->arena.slots[s].acquired && request->model &&
            request->connection == waiter->connection && request->id == waiter->id &&
            request->started_ns == waiter->started_ns)
            return true;
    }
    return false;
}

/* Of native requests that need the same, none gets a slot before one that waits longer. */
static void check_order(const struct lm_io *io) {
    struct waiter *list = waited[io->index];
    uint32_t count = waited_count[io->index], kept = 0;
    for (uint32_t a = 0; a < count; a++) {
        const struct lm_connection *connection = &io->connections[list[a].connection];
        bool still =
            connection->list == LM_LIST_WAITING && connection->in.started_ns == list[a].started_ns;
        for (uint32_t b = a + 1; still && b < count; b++)
            SIM_CHECK(list[a].kind != list[b].kind || !has_begun(io, &list[b]),
                      "connection %u has a slot before connection %u, which waits longer, kind %x",
                      list[b].connection, list[a].connection, list[a].kind);
    }
    for (uint32_t i = io->lists[LM_LIST_WAITING].head; i != LM_NO_CONNECTION;
         i = io->connections[i].next) {
        const struct lm_connection *connection = &io->connections[i];
        struct lm_native_request request;
        char unused[LM_TEXT_BYTES_MAX];
        if (connection->dialect != LM_DIALECT_NATIVE) continue;
        lm_native_parse(connection->in.header, &request, unused, sizeof unused);
        list[kept++] = (struct waiter){.connection = i,
                                       .kind = connection->in.native.free[0] << 24 |
                                               (uint32_t)request.model << 16 | request.rows,
                                       .id = request.id,
                                       .started_ns = connection->in.started_ns};
    }
    waited_count[io->index] = kept;
}

static void check_connection(const struct lm_io *io, const struct lm_connection *connection,
                             struct sums *sums) {
    uint32_t i = connection->index;
    sums->lists[connection->list]++;
    SIM_CHECK((connection->fd < 0) == (connection->list == LM_LIST_FREE),
              "connection %u: descriptor %d on list %u", i, connection->fd, connection->list);
    bool is_stream = connection->fd >= 0 && lm_connection_is_stream(connection);
    SIM_CHECK(is_stream || connection->recv_armed == ring_armed(io->ring, i, false),
              "connection %u: its receive is %sin the ring", i,
              connection->recv_armed ? "not " : "");
    bool parked = connection->fd == LM_FD_PARKED;
    SIM_CHECK(parked || connection->list != LM_LIST_UNPARKING,
              "connection %u waits for a descriptor, and has one", i);
    bool kept = i < lm_parking_places(io) && store_kept(io->fd_store, i);
    SIM_CHECK(parked == kept, "connection %u: descriptor %d, %skept", i, connection->fd,
              parked ? "not " : "");
    sums->parked += parked;
    SIM_CHECK(connection->list != LM_LIST_IDLE || (connection->recv_armed && !parked),
              "connection %u is on the list of those to be parked", i);
    if (connection->fd < 0) return;
    const struct lm_http2_carrier *http2 = carries(connection) ? lm_http2_of(io, connection) : NULL;
    bool sends = http2 ? http2->sends : connection->sending != LM_NO_SLOT;
    SIM_CHECK(is_stream || sends == ring_armed(io->ring, i, true),
              "connection %u: its send is %sin the ring", i, sends ? "not " : "");
    sums->open += !is_stream;
    sums->shelved += http2 ? http2->shelved : 0;
    sums->streams += is_stream;
    sums->counted += connection->counted;
    hold_slots(io, connection);
    SIM_CHECK(!connection->marked, "connection %u is marked, and nobody advances it", i);
    sums->unwhole += connection->in.read_state == LM_READ_WAIT ||
                     (connection->in.read_state == LM_READ_PROLOGUE && !carries(connection)) ||
                     connection->in.receiving != LM_NO_SLOT;
    SIM_CHECK(connection->buffer == LM_NO_BUFFER || connection->list == LM_LIST_UNPARKING ||
                  lm_held_is_page(connection->buffer),
              "connection %u waits with a header buffer", i);
    if (lm_held_is_page(connection->buffer)) {
        sums->pages++;
        SIM_CHECK(io->held.owners[connection->buffer - LM_HEADER_BUFFERS] == i,
                  "connection %u has a page that is not its own", i);
    } else if (connection->buffer != LM_NO_BUFFER) {
        sums->buffers++;
        SIM_CHECK(ring_buffer_is_out(io->ring, connection->buffer),
                  "connection %u holds buffer %d, which is the kernel's", i, connection->buffer);
    }
    if (connection->in.block != LM_NO_BLOCK) {
        sums->blocks++;
        SIM_CHECK(io->http->blocks[connection->in.block].connection == i,
                  "connection %u holds block %u of connection %u", i, connection->in.block,
                  io->http->blocks[connection->in.block].connection);
    }
    check_read_state(connection);
    check_alive(io, connection);
    check_patience(io, connection);
    check_socket(io, connection);
}

/* The timer looks at the first lingering connection alone, so they must be in order. */
static void check_lingering(const struct lm_io *io) {
    uint64_t before_ns = 0;
    for (uint32_t i = io->lists[LM_LIST_LINGERING].head; i != LM_NO_CONNECTION;
         i = io->connections[i].next) {
        SIM_CHECK(io->connections[i].timer_ns >= before_ns,
                  "connection %u lingers behind one that ends later", i);
        before_ns = io->connections[i].timer_ns;
    }
}

/* Requests that may test the estimate of a model and encoding: one of each class of sizes. */
static uint32_t probing_at(const struct lm_io *io, uint32_t model, uint32_t encoding) {
    uint32_t count = 0;
    for (uint32_t c = 0; c < LM_COST_CLASSES; c++)
        count += sim_models.models[model]->sides[io->index]->costs[encoding][c].probing;
    return count;
}

/* Whether another version runs a copy of the request, which is over itself. */
static bool is_copied(const struct lm_request *request, uint32_t slot) {
    return !held[slot] && !request->with_worker && request->model && request->shadow.model &&
           request->keeping.whole && request->status == LM_STATUS_OK;
}

/* Every slot that is taken is a connection's, a worker's, of a copy, or of a request that was
 * answered in its worker's place. */
static void check_slots(const struct lm_io *io) {
    uint32_t acquired = 0, requests = 0, placed = 0;
    uint32_t suspended = 0;
    uint64_t work_ns = 0;
    uint32_t probes[SIM_SERVED][LM_ENCODING_COUNT] = {0}, copies = 0;
    for (uint32_t s = 0; s < io->arena.slot_count; s++) {
        const struct lm_request *request = &io->requests[s];
        if (!io->arena.slots[s].acquired) continue;
        acquired++;
        if (is_copied(request, s)) {
            copies++;
            continue;
        }
        if (request->model) {
            requests++;
            placed += request->placed;
            work_ns += request->cost_ns;
            suspended += request->suspended;
            probes[request->model->index][request->encoding] += request->probe;
        }
        bool overdue = request->model && lm_load_relaxed_u32(&request->claim) == 1;
        SIM_CHECK(held[s] || request->with_worker || overdue, "slot %u is nobody's", s);
        if (request->with_worker) working[request->connection]++;
    }
    SIM_CHECK(copies == io->shadows_out, "%u slots have copies, counted %u", copies,
              io->shadows_out);
    SIM_CHECK(acquired == io->arena.acquired_count, "%u slots are taken, %u counted", acquired,
              io->arena.acquired_count);
    for (uint32_t m = 0; m < sim_models.count; m++)
        for (uint32_t e = 0; e < LM_ENCODING_COUNT; e++)
            SIM_CHECK(probes[m][e] == probing_at(io, m, e),
                      "model %u has %u probes of encoding %u, counted %u", m, probes[m][e], e,
                      probing_at(io, m, e));
    SIM_CHECK(suspended == io->suspended, "suspended is %u, there are %u", io->suspended,
              suspended);
    uint32_t bound = sim_shared.places.max, places = lm_places_taken(&sim_shared.places);
    SIM_CHECK(places <= bound && (sim_shared.io_count > 1 || places == placed),
              "%u of %u places are taken by %u requests", places, bound, placed);
    SIM_CHECK(lm_load_relaxed_u64(&sim_models.used_by[io->index].slots) == acquired,
              "a set of models has not as many users as slots are taken");
    SIM_CHECK(requests == io->in_flight, "in_flight is %u, there are %u", io->in_flight, requests);
    SIM_CHECK(work_ns == io->work_ns, "work_ns is %llu, the requests' sum %llu",
              (unsigned long long)io->work_ns, (unsigned long long)work_ns);
    for (uint32_t i = 0; i < io->connections_used; i++) {
        const struct lm_connection *connection = &io->connections[i];
        uint32_t counted = connection->fd < 0 || carries(connection) ? 0 : connection->in_flight;
        SIM_CHECK(working[i] == counted, "connection %u has %u requests with the workers, not %u",
                  i, working[i], counted);
    }
}

static void check_blocks(const struct lm_io *io, const struct sums *sums) {
    uint32_t free_count = 0, used = 0;
    for (uint16_t b = io->http->free_block; b != LM_NO_BLOCK; b = io->http->blocks[b].next_free)
        SIM_CHECK(++free_count <= sim_limits.http_blocks, "the free blocks are a circle");
    free_count += sim_limits.http_blocks - io->http->blocks_used;
    for (uint32_t b = 0; b < io->http->blocks_used; b++)
        used += io->http->blocks[b].connection != LM_NO_CONNECTION;
    used -= io->http->blocks_kept; /* by calls */
    free_count += io->http->blocks_kept;
    SIM_CHECK(used == sums->blocks && used + free_count == sim_limits.http_blocks,
              "%u blocks are used, %u have an owner, %u are free", used, sums->blocks, free_count);
}

static uint64_t sum_answers(void) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < sim_shared.io_count; i++) {
        const struct lm_io_counters *io = &sim_shared.ios[i].stats->io;
        sum += lm_load_relaxed_u64(&io->requests_ok) + lm_load_relaxed_u64(&io->requests_error) +
               lm_load_relaxed_u64(&io->requests_refused) + lm_load_relaxed_u64(&io->requests_gone);
    }
    for (uint32_t w = 0; w < sim_shared.worker_count; w++) {
        const struct lm_worker_counters *worker = &sim_shared.workers[w].stats->worker;
        sum += lm_load_relaxed_u64(&worker->requests_ok) +
               lm_load_relaxed_u64(&worker->requests_error) +
               lm_load_relaxed_u64(&worker->requests_overloaded) +
               lm_load_relaxed_u64(&worker->requests_expired) +
               lm_load_relaxed_u64(&worker->requests_gone);
    }
    return sum;
}

static void check_counters(uint32_t unwhole) {
    uint64_t requests = 0, answers = sum_answers();
    for (uint32_t i = 0; i < sim_shared.io_count; i++)
        requests += lm_load_relaxed_u64(&sim_shared.ios[i].stats->io.requests);
    SIM_CHECK(requests == answers + unwhole,
              "%llu requests, but %llu answers and %u that are not whole",
              (unsigned long long)requests, (unsigned long long)answers, unwhole);
}

/* Those whose time is up do not keep the others waiting, nor are they forgotten. */
void check_sweep(const struct lm_io *io) {
    uint64_t now = lm_load_relaxed_u64(&io->stats->io.connections_timed_out);
    uint64_t more = now - timed_out[io->index];
    timed_out[io->index] = now;
    SIM_CHECK(more <= sim_limits.expiries_per_turn, "%llu connections were timed out at one go",
              (unsigned long long)more);
}

/* Nobody has work while the thread sleeps. Told apart from the table that says how long that may be
 * (io_due.c), so that whoever forgets an entry there is found here. */
static void check_sleep(const struct lm_io *io, uint64_t timeout_ns) {
    const uint64_t tick_ns = LM_TICK_MS * 1000000ull;
    const struct {
        const char *who;
        bool has_work;
        uint64_t most_ns;
    } duties[] = {
        {"marked connections", io->marked_head != LM_NO_CONNECTION, 0},
        {"requests of the thread's own", lm_spsc_depth(&io->own) > 0, 0},
        {"requests to look up", lm_answers_wait(io), 0},
        {"connections with bytes to parse", io->lists[LM_LIST_RESUMING].count > 0, 0},
        {"a sweep", io->sweep_at > 0, 0},
        {"memory to unmap", io->regions_unused > 0 || io->spills, 0},
        {"a slot for those who wait", io->waiters.released && io->lists[LM_LIST_WAITING].count > 0,
         0},
        {"connections to park", lm_parking_is_due(io), LM_STUCK_TICK_NS},
        {"refused pushes", lm_spsc_depth(&io->ready) > 0, LM_STUCK_TICK_NS},
        {"deadlines of slots", io->lists[LM_LIST_WAITING].count > 0, tick_ns},
        {"deadlines of bytes", io->lists[LM_LIST_WAITING_PART].count > 0, tick_ns},
        {"lingering connections", io->lists[LM_LIST_LINGERING].count > 0, tick_ns},
        {"starved connections", io->lists[LM_LIST_STARVED].count > 0, tick_ns},
        {"connections to unpark", io->lists[LM_LIST_UNPARKING].count > 0, tick_ns},
        {"the drain", io->draining, tick_ns},
        {"requests in flight", io->arena.acquired_count > 0, LM_IDLE_TICK_MS * 1000000ull},
        {"accepts to arm again", io->accept_retry_ns > 0, LM_IDLE_TICK_MS * 1000000ull},
        {"idle connections", io->connections_open > 0, LM_SWEEP_PERIOD_MS * 1000000ull},
    };
    for (size_t o = 0; o < sizeof duties / sizeof duties[0]; o++)
        SIM_CHECK(!duties[o].has_work || timeout_ns <= duties[o].most_ns,
                  "%s, and the thread sleeps for up to %llu us", duties[o].who,
                  (unsigned long long)timeout_ns / 1000);
}

void check_io(struct lm_io *io, uint64_t timeout_ns) {
    check_sleep(io, timeout_ns);
    struct sums sums = {0};
    SIM_CHECK(io->arena.slot_count <= SLOTS_MAX && io->connections_used <= CONNECTIONS_MAX,
              "SLOTS_MAX or CONNECTIONS_MAX is too small");
    memset(held, 0, sizeof held);
    memset(working, 0, sizeof working);
    for (uint32_t i = 0; i < io->connections_used; i++)
        check_connection(io, &io->connections[i], &sums);
    SIM_CHECK(sums.open == io->connections_open, "%u connections are open, %u counted", sums.open,
              io->connections_open);
    SIM_CHECK(sums.shelved == io->http2->shelves.shelved, "%u bytes are shelved, %u counted",
              sums.shelved, io->http2->shelves.shelved);
    SIM_CHECK(sums.streams == io->streams_open, "%u streams are open, %u counted", sums.streams,
              io->streams_open);
    SIM_CHECK(sums.parked == io->connections_parked, "%u connections are parked, %u counted",
              sums.parked, io->connections_parked);
    SIM_CHECK(sums.counted == io->connections_wanting, "%u connections are wanting, %u counted",
              sums.counted, io->connections_wanting);
    for (uint32_t l = LM_LIST_FREE; l < LM_LIST_COUNT; l++)
        SIM_CHECK(sums.lists[l] == io->lists[l].count, "list %u has %u, counted %u", l,
                  sums.lists[l], io->lists[l].count);
    uint32_t buffers = ring_buffers_out(io->ring), coming = ring_buffers_coming(io->ring);
    SIM_CHECK(io->held.taken == sums.pages, "%u pages are taken, %u held", io->held.taken,
              sums.pages);
    SIM_CHECK(buffers == sums.buffers + coming, "%u buffers are out, %u held, %u coming", buffers,
              sums.buffers, coming);
    check_slots(io);
    check_order(io);
    check_lingering(io);
    check_blocks(io, &sums);
    if (sim_shared.io_count == 1 && engine_quiet()) check_counters(sums.unwhole);
}

void check_turn(struct lm_io *io, uint64_t waited_ns, uint32_t completions) {
    bool empty = waited_ns < 20 * SIM_US && completions == 0;
    empty_turns[io->index] = empty ? empty_turns[io->index] + 1 : 0;
    SIM_CHECK(empty_turns[io->index] < EMPTY_TURNS_MAX, "I/O thread %u spins", io->index);
}

/* A copy is run on what its request was run on, and compared with what the client got. */
static void check_copies(const struct lm_io *io) {
    if (!sim_plan.shadow_percent) return;
    const struct lm_io_model_counters *copies = &io->stats->models[SIM_SHADOW].io;
    SIM_CHECK(lm_load_relaxed_u64(&copies->model_shadow_apart) == 0 &&
                  lm_load_relaxed_u64(&copies->model_shadow_failed) == 0 &&
                  lm_load_relaxed_u64(&copies->model_shadow_unfit) == 0 &&
                  lm_load_relaxed_u64(&copies->model_shadow_difference) == 0,
              "a copy is not as its request");
}

void check_baseline(void) {
    for (uint32_t i = 0; i < sim_shared.io_count; i++) {
        struct lm_io *io = &sim_shared.ios[i];
        check_io(io, 0);
        check_copies(io);
        SIM_CHECK(io->arena.acquired_count == 0 && io->in_flight == 0 && io->work_ns == 0 &&
                      io->connections_wanting == 0 && io->held.taken == 0 &&
                      ring_buffers_out(io->ring) == 0,
                  "not everything has come back to I/O thread %u", i);
        SIM_CHECK(!io->answers || lm_response_cache_is_valid(&io->answers->entries),
                  "the response cache of I/O thread %u is not whole", i);
        SIM_CHECK(ring_accepts(io->ring) || io->accept_retry_ns || io->accepts_armed,
                  "I/O thread %u accepts no more", i);
    }
    SIM_CHECK(lm_places_taken(&sim_shared.places) == 0 &&
                  lm_load_relaxed_u64(&sim_shared.connections_open) == 0,
              "places or connections are counted, and nobody is there");
    check_counters(0);
}
