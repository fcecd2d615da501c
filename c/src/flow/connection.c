/* connection.c: the table of connections and their ends; see connection.h. I/O thread only. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "dialects/http.h"

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

int lm_connections_open(struct lm_io *io, uint32_t capacity) {
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
    io->connections_used = 0;
    for (uint32_t l = 0; l < LM_LIST_COUNT; l++)
        io->lists[l] = (struct lm_list){LM_NO_CONNECTION, LM_NO_CONNECTION, 0};
    return 0;
}

void lm_connections_close(struct lm_io *io) {
    for (uint32_t i = 0; i < io->connections_used; i++) {
        int fd = io->connections[i].fd;
        if (fd != LM_FD_FREE && fd != LM_FD_PARKED) close(fd);
    }
    free(io->deadlines);
    io->deadlines = NULL;
    lm_mapping_close(&io->connection_memory);
    io->connections = NULL;
    io->connections_used = 0;
    io->connection_capacity = 0;
}

/* false: there are as many as there may be, over all I/O threads. */
static bool count_connection(struct lm_shared *shared) {
    uint64_t open = lm_load_relaxed_u64(&shared->connections_open); /* relaxed: a count alone */
    do {
        if (open >= shared->connections_max) return false;
    } while (!lm_cas_weak_relaxed_u64(&shared->connections_open, &open, open + 1));
    return true;
}

struct lm_connection *lm_connection_open(struct lm_io *io, int fd) {
    uint32_t index = io->lists[LM_LIST_FREE].head;
    bool full = index == LM_NO_CONNECTION && io->connections_used == io->connection_capacity;
    if (full || !count_connection(io->shared)) return NULL;
    if (index == LM_NO_CONNECTION) index = io->connections_used++;
    struct lm_connection *connection = &io->connections[index];
    lm_connection_move(io, connection, LM_LIST_NONE);
    uint32_t generation = connection->generation;
    struct lm_connection fresh = {.fd = fd,
                                  .index = index,
                                  .generation = generation,
                                  .read_state = LM_READ_HEADER,
                                  .block = LM_NO_BLOCK,
                                  .buffer = LM_NO_BUFFER,
                                  .receiving = LM_NO_SLOT,
                                  .sending = LM_NO_SLOT,
                                  .reply_head = LM_NO_SLOT,
                                  .reply_tail = LM_NO_SLOT,
                                  .address = LM_NO_ADDRESS,
                                  .prev = LM_NO_CONNECTION,
                                  .next = LM_NO_CONNECTION};
    /* relaxed: a worker that holds an overdue request of the entry's last owner may look at `gone`
     */
    lm_store_relaxed_u32(&connection->sender, 0);
    lm_store_relaxed_u32(&connection->gone, 0);
    size_t words = offsetof(struct lm_connection, fd);
    memcpy((uint8_t *)connection + words, (const uint8_t *)&fresh + words, sizeof fresh - words);
    io->connections_open++;
    lm_add_single_writer_u64(&io->stats->io.connections_accepted, 1);
    return connection;
}

bool lm_connection_may_parse(const struct lm_connection *connection) {
    /* HTTP's replies have no id: they come in the order of their requests, one at a time. */
    uint32_t most = connection->dialect == LM_DIALECT_HTTP ? 1 : LM_PIPELINE_MAX;
    return !connection->ended && !connection->close_after_reply && connection->in_flight < most &&
           connection->sending == LM_NO_SLOT && connection->reply_head == LM_NO_SLOT;
}

/* Gives back what a half-read request holds. Returns whether there was one: what counts as a
 * request is a header read whole. */
static bool drop_request(struct lm_io *io, struct lm_connection *connection) {
    bool half_read = connection->read_state == LM_READ_WAIT ||
                     connection->read_state == LM_READ_JSON ||
                     connection->read_state == LM_READ_DROP_CHUNKS;
    lm_http_block_give(io, connection);
    if (connection->receiving != LM_NO_SLOT && !connection->recv_armed) {
        struct lm_request *request = &io->requests[connection->receiving];
        connection->receiving = LM_NO_SLOT;
        half_read = true;
        lm_io_release(io, request);
    }
    connection->header_used = 0;
    return half_read;
}

static void count_dropped(struct lm_io *io, const struct lm_connection *connection,
                          uint32_t model) {
    enum lm_status status = (enum lm_status)connection->cut_short;
    if (status == LM_STATUS_OK) {
        lm_add_single_writer_u64(&io->stats->io.requests_gone, 1);
    } else {
        lm_gate_count_refusal(io, status, model);
    }
}

static void drop_reading(struct lm_io *io, struct lm_connection *connection) {
    if (connection->buffer != LM_NO_BUFFER) {
        lm_io_buffer_return(io, connection->buffer);
        connection->buffer = LM_NO_BUFFER;
    }
    uint32_t slot = connection->receiving;
    uint32_t model = slot == LM_NO_SLOT ? UINT32_MAX : io->requests[slot].model->index;
    if (drop_request(io, connection)) count_dropped(io, connection, model);
    if (connection->read_state != LM_READ_LINGER) connection->read_state = LM_READ_HEADER;
    if (lm_connection_waits(connection) || connection->list == LM_LIST_STARVED ||
        connection->list == LM_LIST_RESUMING || connection->list == LM_LIST_UNPARKING ||
        lm_connection_expects(connection)) {
        lm_connection_move(io, connection, LM_LIST_NONE);
    }
}

static void stop_receiving(struct lm_io *io, const struct lm_connection *connection) {
    if (connection->fd == LM_FD_PARKED) {
        lm_ring_cancel_recv_header(io->ring, connection->index, connection->generation);
    } else {
        shutdown(connection->fd, SHUT_RD);
    }
}

void lm_connection_end(struct lm_io *io, struct lm_connection *connection) {
    connection->ended = true;
    /* The kernel may still write into the slot: shut down, and let the completion come here again.
     */
    if (connection->recv_armed) stop_receiving(io, connection);
    drop_reading(io, connection);
}

void lm_connection_abort(struct lm_io *io, struct lm_connection *connection) {
    /* relaxed: a worker that misses it sends into a dead socket, which is harmless */
    lm_store_relaxed_u32(&connection->gone, 1);
    if (connection->fd != LM_FD_PARKED) shutdown(connection->fd, SHUT_RDWR);
    lm_connection_end(io, connection);
    lm_reply_drop_waiting(io, connection);
}

void lm_connection_linger(struct lm_io *io, struct lm_connection *connection) {
    (void)drop_request(io, connection); /* it is counted where it is refused */
    connection->read_state = LM_READ_LINGER;
    connection->discard_bytes = LM_LINGER_BYTES_MAX;
    lm_connection_move(io, connection, LM_LIST_LINGERING);
}

static void close_connection(struct lm_io *io, struct lm_connection *connection) {
    LM_DEBUG_ASSERT(connection->receiving == LM_NO_SLOT && connection->buffer == LM_NO_BUFFER);
    if (connection->fd == LM_FD_PARKED) {
        lm_fd_store_drop(io->fd_store, connection->index);
        io->connections_parked--;
    } else {
        close(connection->fd);
        io->descriptor_freed = true;
    }
    connection->fd = LM_FD_FREE;
    lm_address_table_remove(&io->shared->addresses, connection->address);
    (void)lm_sub_acq_rel_u64(&io->shared->connections_open, 1); /* as in count_connection */
    connection->generation = (connection->generation + 1) & 0xffffff;
    io->connections_open--;
    lm_add_single_writer_u64(&io->stats->io.connections_closed, 1);
    lm_connection_move(io, connection, LM_LIST_FREE);
    if (io->accept_retry_ns) io->accept_retry_ns = io->now_ns; /* a descriptor is free again */
}

/* ---- many connections ---- */

static bool is_idle(const struct lm_connection *connection) {
    return connection->recv_armed && !connection->ended && connection->list == LM_LIST_NONE &&
           connection->read_state == LM_READ_HEADER && connection->header_used == 0 &&
           connection->in_flight == 0 && connection->sending == LM_NO_SLOT &&
           connection->reply_head == LM_NO_SLOT;
}

/* How many idle ones have a descriptor too many: beyond their half, or that others ask for. */
static uint32_t count_to_park(const struct lm_io *io) {
    uint32_t unparked = io->connections_open - io->connections_parked;
    uint32_t count = unparked > io->unparked_max ? unparked - io->unparked_max : 0;
    if (count < io->lists[LM_LIST_UNPARKING].count) count = io->lists[LM_LIST_UNPARKING].count;
    return count < io->lists[LM_LIST_IDLE].count ? count : io->lists[LM_LIST_IDLE].count;
}

bool lm_connections_wait_to_park(const struct lm_io *io) {
    return io->now_ns >= io->next_park_ns && count_to_park(io) > 0;
}

void lm_connections_park(struct lm_io *io) {
    if (!lm_connections_wait_to_park(io)) return;
    if (!lm_ring_is_submitted(io->ring)) return; /* a receive in there needs its descriptor */
    for (uint32_t count = count_to_park(io); count > 0; count--) {
        struct lm_connection *connection = &io->connections[io->lists[LM_LIST_IDLE].head];
        if (lm_fd_store_put(io->fd_store, connection->index, connection->fd) != 0) {
            io->next_park_ns = io->now_ns + LM_PARK_RETRY_MS * 1000000ull; /* no memory */
            return;
        }
        close(connection->fd);
        io->descriptor_freed = true;
        connection->fd = LM_FD_PARKED;
        io->connections_parked++;
        lm_connection_move(io, connection, LM_LIST_NONE);
        if (io->accept_retry_ns) io->accept_retry_ns = io->now_ns; /* a descriptor is free again */
    }
}

bool lm_connection_unpark(struct lm_io *io, struct lm_connection *connection) {
    LM_ASSERT(connection->fd == LM_FD_PARKED);
    int fd = lm_fd_store_get(io->fd_store, connection->index);
    if (fd < 0) return false;
    lm_fd_store_drop(io->fd_store, connection->index);
    connection->fd = fd;
    io->connections_parked--;
    lm_add_single_writer_u64(&io->stats->io.connections_unparked, 1);
    return true;
}

void lm_connection_settle(struct lm_io *io, struct lm_connection *connection) {
    bool replies_wait = connection->reply_head != LM_NO_SLOT || connection->sending != LM_NO_SLOT;
    bool busy = connection->in_flight > 0 || replies_wait;
    /* HTTP: the reply to the last request is out. */
    if (connection->close_after_reply && !busy && !connection->ended &&
        connection->read_state == LM_READ_HEADER) {
        connection->close_after_reply = false;
        lm_connection_linger(io, connection);
        lm_receive_continue(io, connection);
    }
    if (connection->read_state == LM_READ_LINGER && !busy && !connection->write_shut) {
        connection->write_shut = true;
        connection->timer_ns = io->now_ns + LM_LINGER_MS * 1000000ull; /* from here on */
        shutdown(connection->fd, SHUT_WR);
    }
    /* When draining, a connection between two requests has no future. */
    if (io->draining && !connection->ended && !busy && connection->read_state == LM_READ_HEADER &&
        connection->header_used == 0 && connection->buffer == LM_NO_BUFFER) {
        lm_connection_end(io, connection);
    }
    /* HTTP: the next request is here already, or there will be none. */
    bool holds_next = connection->dialect == LM_DIALECT_HTTP &&
                      (connection->buffer != LM_NO_BUFFER || connection->close_after_reply);
    bool wanting = connection->in_flight > 0 &&
                   (connection->ended || replies_wait || connection->in_flight >= LM_PIPELINE_MAX ||
                    connection->read_state == LM_READ_LINGER || holds_next);
    if (wanting != connection->counted) {
        connection->counted = wanting;
        io->connections_wanting += wanting ? 1u : (uint32_t)-1;
    }
    if (connection->ended && !connection->recv_armed && !busy) close_connection(io, connection);
    if (io->fd_store && connection->fd != LM_FD_PARKED && is_idle(connection))
        lm_connection_move(io, connection, LM_LIST_IDLE);
    lm_timer_update(io, connection);
}
