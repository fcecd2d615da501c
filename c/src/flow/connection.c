/* connection.c: see connection.h. I/O thread only. */
#include "flow/connection.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "flow/refusal.h"
#include "flow/region.h"
#include "flow/slots.h"
#include "flow/transport.h"

static void list_append(struct lm_io *io, struct lm_connection *connection,
                        enum lm_connection_list which) {
    connection->list = (uint8_t)which;
    if (which == LM_LIST_NONE) return;
    struct lm_list *list = &io->lists[which];
    connection->prev = list->tail;
    connection->next = LM_NO_CONNECTION;
    if (list->tail == LM_NO_CONNECTION) {
        list->head = connection->index;
    } else {
        io->connections[list->tail].next = connection->index;
    }
    list->tail = connection->index;
    list->count++;
}

static void list_remove(struct lm_io *io, struct lm_connection *connection) {
    if (connection->list == LM_LIST_NONE) return;
    struct lm_list *list = &io->lists[connection->list];
    if (connection->prev == LM_NO_CONNECTION) {
        list->head = connection->next;
    } else {
        io->connections[connection->prev].next = connection->next;
    }
    if (connection->next == LM_NO_CONNECTION) {
        list->tail = connection->prev;
    } else {
        io->connections[connection->next].prev = connection->prev;
    }
    list->count--;
    connection->list = LM_LIST_NONE;
}

void lm_connection_move(struct lm_io *io, struct lm_connection *connection,
                        enum lm_connection_list list) {
    list_remove(io, connection);
    list_append(io, connection, list);
}

int lm_connections_open(struct lm_io *io, uint32_t connections) {
    const uint32_t capacity = connections + LM_STREAMS_MAX + io->dialed_max;
    /* Untouched: an entry costs memory from its first connection on. */
    int code = lm_mapping_reserve(&io->connection_memory, capacity * sizeof *io->connections);
    if (code) {
        return lm_error(LUMEN_E_NOMEM,
                        "no memory for a table of %u connections (lower server.max_connections?)",
                        capacity);
    }
    io->connections = io->connection_memory.base;
    io->connection_capacity = capacity;
    io->opened_ns = lm_now_ns();
    io->deadlines = calloc(capacity, sizeof *io->deadlines);
    if (!io->deadlines)
        return lm_error(LUMEN_E_NOMEM, "no memory for a table of %u connections", capacity);
    if (io->shared->config.max_connection_age_seconds) {
        io->opened = calloc(capacity, sizeof *io->opened);
        if (!io->opened) return lm_error(LUMEN_E_NOMEM, "no memory for the ages of connections");
    }
    io->connections_used = 0;
    io->marked_head = io->marked_tail = LM_NO_CONNECTION;
    for (uint32_t l = 0; l < LM_LIST_COUNT; l++)
        io->lists[l] = (struct lm_list){LM_NO_CONNECTION, LM_NO_CONNECTION, 0};
    return 0;
}

void lm_connections_close(struct lm_io *io) {
    for (uint32_t i = 0; i < io->connections_used; i++) {
        struct lm_connection *connection = &io->connections[i];
        if (connection->fd != LM_FD_FREE && connection->fd != LM_FD_PARKED)
            lm_transport_of(io, connection)->release(io, connection);
    }
    free(io->deadlines);
    free(io->opened);
    io->deadlines = io->opened = NULL;
    lm_mapping_close(&io->connection_memory);
    io->connections = NULL;
    io->connections_used = 0;
    io->connection_capacity = 0;
}

static const uint64_t tick_ns = LM_TIMER_TICK_MS * 1000000ull;

uint64_t lm_connection_old_ns(const struct lm_io *io, const struct lm_connection *connection) {
    if (!io->opened) return 0;
    const uint64_t age_ns = io->shared->config.max_connection_age_seconds * 1000000000ull;
    const uint32_t spread =
        (connection->index ^ connection->generation) * 2654435761u >> 22; /* of 1024 */
    return io->opened_ns + io->opened[connection->index] * tick_ns + age_ns +
           age_ns / 10 * spread / 1024;
}

bool lm_connection_is_old(const struct lm_io *io, const struct lm_connection *connection) {
    const uint64_t old_ns = lm_connection_old_ns(io, connection);
    return old_ns && io->now_ns >= old_ns;
}

/* false: there are as many as there may be, over all I/O threads. */
static bool count_connection(struct lm_shared *shared) {
    uint64_t open = lm_load_relaxed_u64(&shared->connections_open); /* relaxed: a count alone */
    do {
        if (open >= shared->config.max_connections) return false;
    } while (!lm_cas_weak_relaxed_u64(&shared->connections_open, &open, open + 1));
    return true;
}

/* An entry; NULL: all are taken. */
static struct lm_connection *take_entry(struct lm_io *io, int fd, uint8_t transport) {
    uint32_t index = io->lists[LM_LIST_FREE].head;
    if (index == LM_NO_CONNECTION && io->connections_used == io->connection_capacity) return NULL;
    if (index == LM_NO_CONNECTION) index = io->connections_used++;
    struct lm_connection *connection = &io->connections[index];
    lm_connection_move(io, connection, LM_LIST_NONE);
    uint32_t generation = connection->generation;
    if (io->opened) io->opened[index] = (uint32_t)((io->now_ns - io->opened_ns) / tick_ns);
    struct lm_connection fresh = {.fd = fd,
                                  .transport = transport,
                                  .index = index,
                                  .generation = generation,
                                  .in.read_state = LM_READ_HEADER,
                                  .in.block = LM_NO_BLOCK,
                                  .buffer = LM_NO_BUFFER,
                                  .in.receiving = LM_NO_SLOT,
                                  .sending = LM_NO_SLOT,
                                  .reply_head = LM_NO_SLOT,
                                  .reply_tail = LM_NO_SLOT,
                                  .address = LM_NO_ADDRESS,
                                  .region = LM_NO_REGION,
                                  .prev = LM_NO_CONNECTION,
                                  .next = LM_NO_CONNECTION};
    /* relaxed: a worker that holds an overdue request of the entry's last owner may look at `gone`
     */
    lm_store_relaxed_u32(&connection->sender, 0);
    lm_store_relaxed_u32(&connection->gone, 0);
    size_t words = offsetof(struct lm_connection, fd);
    memcpy((uint8_t *)connection + words, (const uint8_t *)&fresh + words, sizeof fresh - words);
    return connection;
}

struct lm_connection *lm_connection_open(struct lm_io *io, int fd, uint8_t transport) {
    if (!count_connection(io->shared)) return NULL;
    struct lm_connection *connection = take_entry(io, fd, transport);
    if (!connection) {
        (void)lm_sub_relaxed_u64(&io->shared->connections_open, 1); /* relaxed: a count alone */
        return NULL;
    }
    io->connections_open++;
    lm_add_single_writer_u64(&io->stats->io.connections_accepted, 1);
    return connection;
}

struct lm_connection *lm_connection_open_stream(struct lm_io *io,
                                                const struct lm_connection *carrier) {
    if (io->streams_open == LM_STREAMS_MAX) return NULL;
    struct lm_connection *connection = take_entry(io, carrier->fd, LM_TRANSPORT_STREAM);
    if (!connection) return NULL;
    connection->carrier = carrier->index;
    io->streams_open++;
    return connection;
}

struct lm_connection *lm_connection_open_dialed(struct lm_io *io, int fd, uint8_t dialect) {
    if (io->dialed_open == io->dialed_max) return NULL;
    struct lm_connection *connection = take_entry(io, fd, LM_TRANSPORT_TCP);
    if (!connection) return NULL;
    connection->dialect = dialect;
    connection->in.read_state = LM_READ_WAIT;
    io->dialed_open++;
    return connection;
}

void lm_connection_mark(struct lm_io *io, struct lm_connection *connection) {
    if (connection->marked) return;
    connection->marked = true;
    connection->next_marked = LM_NO_CONNECTION;
    if (io->marked_tail == LM_NO_CONNECTION) {
        io->marked_head = connection->index;
    } else {
        io->connections[io->marked_tail].next_marked = connection->index;
    }
    io->marked_tail = connection->index;
}

struct lm_connection *lm_connection_take_marked(struct lm_io *io) {
    if (io->marked_head == LM_NO_CONNECTION) return NULL;
    struct lm_connection *connection = &io->connections[io->marked_head];
    io->marked_head = connection->next_marked;
    if (io->marked_head == LM_NO_CONNECTION) io->marked_tail = LM_NO_CONNECTION;
    connection->marked = false;
    return connection;
}

bool lm_connection_may_parse(const struct lm_io *io, const struct lm_connection *connection) {
    return !connection->ended && connection->in_flight < lm_io_in_flight_max(io, connection) &&
           !lm_connection_is_sending(connection);
}

/* Gives back what a half-read request holds. Returns whether there was one: what counts as a
 * request is a header read whole, and a carrier's requests are its streams'. */
static bool drop_request(struct lm_io *io, struct lm_connection *connection) {
    bool has_slot = connection->in.receiving != LM_NO_SLOT;
    bool in_prologue = connection->in.read_state == LM_READ_PROLOGUE && !has_slot;
    bool half_read = connection->in.read_state == LM_READ_WAIT ||
                     (in_prologue && !lm_io_dialect(io, connection)->carry);
    lm_io_dialect(io, connection)->forget(io, connection);
    if (has_slot && !connection->recv_armed) {
        struct lm_request *request = &io->requests[connection->in.receiving];
        connection->in.receiving = LM_NO_SLOT;
        half_read = true;
        lm_slots_release(io, request);
    }
    connection->in.header_used = 0;
    return half_read;
}

static void count_dropped(struct lm_io *io, const struct lm_connection *connection,
                          uint32_t model) {
    enum lm_status status = (enum lm_status)connection->in.cut_short;
    if (status == LM_STATUS_OK) {
        lm_add_single_writer_u64(&io->stats->io.requests_gone, 1);
    } else {
        lm_refusal_count(io, status, model);
    }
}

void lm_connection_drop_reading(struct lm_io *io, struct lm_connection *connection) {
    if (connection->buffer != LM_NO_BUFFER) {
        lm_io_buffer_return(io, connection->buffer);
        connection->buffer = LM_NO_BUFFER;
    }
    uint32_t slot = connection->in.receiving;
    uint32_t model = slot == LM_NO_SLOT ? UINT32_MAX : io->requests[slot].model->index;
    if (drop_request(io, connection) && !lm_dialect_is_own(connection->dialect))
        count_dropped(io, connection, model);
    if (connection->in.read_state != LM_READ_LINGER) connection->in.read_state = LM_READ_HEADER;
}

static void stop_receiving(struct lm_io *io, struct lm_connection *connection) {
    if (connection->fd == LM_FD_PARKED) {
        lm_ring_cancel_recv_header(io->ring, connection->index, connection->generation);
    } else {
        lm_transport_of(io, connection)->shut(io, connection, SHUT_RD);
    }
}

void lm_connection_end(struct lm_io *io, struct lm_connection *connection) {
    bool again = connection->ended;
    connection->ended = true;
    lm_connection_mark(io, connection);
    /* Nobody gives it anything any more. */
    if (connection->list != LM_LIST_LINGERING) lm_connection_move(io, connection, LM_LIST_NONE);
    /* The kernel may still write into the slot: its completion comes, and marks again. */
    if (connection->recv_armed && !again) stop_receiving(io, connection);
}

void lm_connection_end_idle(struct lm_io *io, struct lm_connection *connection) {
    if (!connection->recv_armed) {
        lm_connection_end(io, connection);
    } else if (!connection->read_shut) {
        connection->read_shut = true;
        stop_receiving(io, connection);
    }
}

bool lm_connection_may_half_close(const struct lm_io *io, const struct lm_connection *connection) {
    return !lm_io_dialect(io, connection)->is_http || io->shared->config.half_close;
}

void lm_connection_abort(struct lm_io *io, struct lm_connection *connection) {
    /* relaxed: a worker that misses it sends into a dead socket, which is harmless */
    lm_store_relaxed_u32(&connection->gone, 1);
    if (connection->fd != LM_FD_PARKED)
        lm_transport_of(io, connection)->shut(io, connection, SHUT_RDWR);
    lm_connection_end(io, connection);
}

void lm_connection_linger(struct lm_io *io, struct lm_connection *connection, uint64_t left) {
    (void)drop_request(io, connection); /* it is counted where it is refused */
    connection->in.read_state = LM_READ_LINGER;
    if (left > LM_LINGER_BODY_BYTES_MAX) left = LM_LINGER_BODY_BYTES_MAX;
    connection->in.discard_bytes = left + LM_LINGER_BYTES_MAX;
    lm_connection_move(io, connection, LM_LIST_NONE);
    lm_connection_mark(io, connection);
}

void lm_connection_close(struct lm_io *io, struct lm_connection *connection) {
    LM_DEBUG_ASSERT(connection->in.receiving == LM_NO_SLOT && connection->buffer == LM_NO_BUFFER);
    const bool is_stream = lm_connection_is_stream(connection);
    const bool is_dialed = lm_dialect_is_own(connection->dialect);
    if (connection->fd == LM_FD_PARKED) {
        lm_fd_store_drop(io->fd_store, connection->index);
        io->connections_parked--;
    } else {
        lm_transport_of(io, connection)->release(io, connection);
        io->descriptor_freed = true;
    }
    connection->fd = LM_FD_FREE;
    connection->generation = (connection->generation + 1) & 0xffffff;
    lm_connection_move(io, connection, LM_LIST_FREE);
    if (is_stream || is_dialed) {
        if (is_stream) io->streams_open--;
        if (is_dialed) io->dialed_open--;
        return;
    }
    lm_region_drop(io, connection);
    lm_address_table_remove(&io->shared->addresses, connection->address);
    (void)lm_sub_relaxed_u64(&io->shared->connections_open, 1); /* relaxed: a count alone */
    io->connections_open--;
    lm_add_single_writer_u64(&io->stats->io.connections_closed, 1);
    if (io->accept_retry_ns) io->accept_retry_ns = io->now_ns; /* a descriptor is free again */
}
