/* access_log.c: see access_log.h. */
#include "flow/access_log.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "dialects/http.h"
#include "parts/json_text.h"
#include "parts/line_file.h"

/* ---- rows: I/O threads and workers ---- */

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
    uint32_t key = LM_NO_KEY;
    client->key[0] = '\0';
    if (access->keys.count == 0 || connection->started_ns < access->since_ns) return;
    if (connection->dialect == LM_DIALECT_HTTP) {
        key = connection->call.key;
    } else if (connection->dialect == LM_DIALECT_NATIVE &&
               (connection->header[28] & LM_FLAG_CREDENTIAL)) {
        struct lm_token token = lm_keys_credential(connection->header + LM_NATIVE_REQUEST_BYTES);
        key = lm_keys_find(&access->keys, token.at, token.bytes);
    }
    if (key < access->keys.count)
        memcpy(client->key, access->keys.entries[key].name, sizeof client->key);
}

void lm_access_log_push(struct lm_io *io, const struct lm_connection *connection,
                        const struct lm_access_entry *entry) {
    uint64_t now_ns = lm_now_ns();
    struct lm_trace_record row = {
        .id = entry->id,
        .started_ns = connection->started_ns,
        .total_ns = now_ns - connection->started_ns,
        .bytes = entry->bytes < UINT32_MAX ? (uint32_t)entry->bytes : UINT32_MAX,
        .model = entry->model < io->shared->model_count ? (uint16_t)entry->model
                                                        : (uint16_t)LM_TRACE_NO_MODEL,
        .code = (uint16_t)entry->code,
        .what = entry->what,
        .is_http = connection->dialect == LM_DIALECT_HTTP,
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

void lm_access_log_complete(const struct lm_request *request, struct lm_trace_record *row) {
    const struct lm_oip_request *asked = &request->http.asked;
    row->client = request->client;
    row->is_http = request->dialect == LM_DIALECT_HTTP;
    memcpy(row->why, request->why, sizeof row->why);
    row->code = row->status;
    if (!row->is_http) return;
    row->code = (uint16_t)lm_http_code((enum lm_status)request->status);
    size_t bytes = asked->id_bytes < sizeof row->http_id ? asked->id_bytes : 0;
    memcpy(row->http_id, asked->id, bytes);
    row->http_id[bytes] = '\0';
}

/* ---- lines: the telemetry thread ---- */

struct line {
    char *at;
    size_t used;
};

static void put(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct line *line, const char *format, ...) {
    size_t room = LM_LINE_BYTES_MAX - line->used;
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line->at + line->used, room, format, arguments);
    va_end(arguments);
    LM_ASSERT(bytes >= 0 && (size_t)bytes < room); /* all parts have their bounds */
    line->used += (size_t)bytes;
}

/* A text in quotes, as JSON says it, in both forms: a client's text may hold anything. */
static void put_text(struct line *line, const char *text) {
    char escaped[LM_JSON_ESCAPE_MAX * LM_TRACE_WHY_BYTES];
    size_t bytes = 0;
    if (!lm_json_escape(text, strlen(text), escaped, sizeof escaped, &bytes)) bytes = 0;
    put(line, "\"%.*s\"", (int)bytes, escaped);
}

static void put_time(struct line *line, uint64_t realtime_ns) {
    time_t seconds = (time_t)(realtime_ns / 1000000000u);
    struct tm when;
    char text[32];
    gmtime_r(&seconds, &when);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &when);
    put(line, "%s.%06uZ", text, (unsigned)(realtime_ns % 1000000000u / 1000));
}

static void put_peer(struct line *line, const struct lm_trace_client *client) {
    char text[INET6_ADDRSTRLEN] = "";
    if (client->family == AF_INET || client->family == AF_INET6)
        inet_ntop(client->family, client->address, text, sizeof text);
    if (client->family == AF_INET) {
        put(line, "%s:%u", text, client->port);
    } else if (client->family == AF_INET6) {
        put(line, "[%s]:%u", text, client->port);
    } else {
        put(line, "%s", client->family == AF_UNIX ? "unix" : "-");
    }
}

/* The words of a line in their order; the two forms differ in what is around them. */
static void put_fields(struct line *line, const struct lm_trace_record *row,
                       const struct lm_model *models, bool as_json) {
    const char *pair = as_json ? ",\"%s\":" : " %s=";
    const char *what = row->what ? row->what : "infer";
    put(line, as_json ? ",\"dialect\":\"%s\",\"request\":\"%s\"" : " %s %s",
        row->is_http ? "http" : "native", what);
    if (row->model != LM_TRACE_NO_MODEL) {
        put(line, pair, "model");
        put_text(line, models[row->model].name);
    }
    if (row->client.key[0]) {
        put(line, pair, "key");
        put_text(line, row->client.key);
    }
    put(line, pair, "status");
    put(line, "%u", row->code);
    put(line, pair, "bytes");
    put(line, "%u", row->bytes);
    if (row->http_id[0]) {
        put(line, pair, "id");
        put(line, "\"%s\"", row->http_id); /* it is JSON's already */
    } else if (!row->is_http) {
        put(line, pair, "id");
        put(line, "%llu", (unsigned long long)row->id);
    }
    static const char *const names[] = {"receive_us", "queue_us", "preprocess_us", "infer_us",
                                        "send_us"};
    const uint64_t times_ns[] = {row->receive_ns, row->queue_ns, row->preprocess_ns, row->infer_ns,
                                 row->send_ns};
    for (size_t t = 0; !row->what && t < sizeof names / sizeof names[0]; t++) {
        put(line, pair, names[t]);
        put(line, "%llu", (unsigned long long)(times_ns[t] / 1000));
    }
    put(line, pair, "total_us");
    put(line, "%llu", (unsigned long long)(row->total_ns / 1000));
    if (!row->why[0]) return;
    put(line, pair, "why");
    put_text(line, row->why);
}

size_t lm_access_log_line(char *text, const struct lm_trace_record *row,
                          const struct lm_model *models, uint64_t offset_ns, bool as_json) {
    struct line line = {.at = text};
    if (as_json) put(&line, "{\"time\":\"");
    /* When its answer was ready: lines are about in the order of their times. */
    put_time(&line, row->started_ns + row->total_ns + offset_ns);
    put(&line, as_json ? "\",\"peer\":\"" : " ");
    put_peer(&line, &row->client);
    if (as_json) put(&line, "\"");
    put_fields(&line, row, models, as_json);
    put(&line, as_json ? "}\n" : "\n");
    return line.used;
}
