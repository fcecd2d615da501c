/* access_log.c: see access_log.h. */
#include "flow/access_log.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "flow/dialect.h"

static void find_peer(int fd, struct lm_trace_client *client) {
    struct sockaddr_storage peer = {0};
    socklen_t bytes = sizeof peer;
    client->family = 0;
    if (fd < 0 || getpeername(fd, (struct sockaddr *)&peer, &bytes) != 0) return;
    client->family = peer.ss_family;
    if (peer.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&peer;
        memcpy(client->address, &v4->sin_addr, sizeof v4->sin_addr);
        client->port = ntohs(v4->sin_port);
    } else if (peer.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&peer;
        memcpy(client->address, &v6->sin6_addr, sizeof v6->sin6_addr);
        client->port = ntohs(v6->sin6_port);
    }
}

/* The key's name. A reload since the request came may have given its number to another key: then
 * none is named. */
static void find_key(const struct lm_io *io, const struct lm_connection *connection,
                     struct lm_trace_client *client) {
    const struct lm_access *access = io->access;
    client->key[0] = '\0';
    if (access->keys.count == 0 || connection->in.started_ns <= io->access_since_ns) return;
    uint32_t key = lm_io_dialect(io, connection)->key(io, connection);
    if (key < access->keys.count)
        memcpy(client->key, access->keys.entries[key].name, sizeof client->key);
}

void lm_access_log_push(struct lm_io *io, const struct lm_connection *connection,
                        const struct lm_access_entry *entry) {
    uint64_t now_ns = lm_now_ns();
    struct lm_trace_record row = {
        .id = entry->id,
        .started_ns = connection->in.started_ns,
        .total_ns = now_ns - connection->in.started_ns,
        .bytes = entry->bytes < UINT32_MAX ? (uint32_t)entry->bytes : UINT32_MAX,
        .model = lm_model_set_find(io->models, entry->model) ? (uint16_t)entry->model
                                                             : (uint16_t)LM_TRACE_NO_MODEL,
        .code = (uint16_t)entry->code,
        .what = entry->what,
        .dialect = lm_io_dialect(io, connection)->name,
        .is_http = lm_io_dialect(io, connection)->is_http,
    };
    if (entry->request) {
        row.client = entry->request->client;
    } else {
        find_peer(connection->fd, &row.client);
        find_key(io, connection, &row.client);
    }
    if (entry->why) snprintf(row.why, sizeof row.why, "%s", entry->why);
    lm_trace_push(&io->trace, &row);
    /* relaxed: own words */
    lm_store_relaxed_u64(&io->stats->io.traces_dropped, lm_load_relaxed_u64(&io->trace.dropped));
}

void lm_access_log_admit(struct lm_io *io, const struct lm_connection *connection,
                         struct lm_request *request) {
    request->why[0] = '\0';
    if (!io->shared->access_logged) return;
    find_peer(connection->fd, &request->client);
    find_key(io, connection, &request->client);
}

void lm_access_log_push_own(struct lm_io *io, const struct lm_request *request,
                            const struct lm_access_own *own) {
    struct lm_trace_record row = {.id = request->id,
                                  .started_ns = request->started_ns,
                                  .receive_ns = request->received_ns - request->started_ns,
                                  .queue_ns = request->popped_ns - request->received_ns,
                                  .infer_ns = request->inferred_ns - request->preprocessed_ns,
                                  .send_ns = own->sent_ns - request->inferred_ns,
                                  .total_ns = own->sent_ns - request->started_ns,
                                  .bytes = request->payload_bytes,
                                  .rows = request->sizes.rows,
                                  .expert = request->expert ? (uint16_t)(request->expert->index + 1)
                                                            : (uint16_t)0,
                                  .allocator = lm_slot_allocator(request->slot),
                                  .model = (uint16_t)request->model->index,
                                  .status = request->status,
                                  .is_span_alone = own->is_span_alone,
                                  .kind = (uint8_t)own->kind};
    lm_access_log_complete(request, &row);
    if (own->code) row.code = (uint16_t)own->code;
    lm_trace_push(&io->trace, &row);
    /* relaxed: own words */
    lm_store_relaxed_u64(&io->stats->io.traces_dropped, lm_load_relaxed_u64(&io->trace.dropped));
}

void lm_access_log_complete(const struct lm_request *request, struct lm_trace_record *row) {
    row->context = request->context;
    if (!request->io->shared->access_logged && !row->context.span) return;
    row->client = request->client;
    memcpy(row->why, request->why, sizeof row->why);
    row->code = row->status;
    row->dialect = lm_request_dialect(request)->name;
    lm_request_dialect(request)->complete_row(request, row);
}
