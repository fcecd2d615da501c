/* access_line.c: see access_line.h. */
#include "work/access_line.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/json_text.h"
#include "parts/line_file.h"

_Static_assert((int)LM_NAME_BYTES_MAX >= (int)LM_TRACE_WHY_BYTES,
               "the longest text is a model's name");

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
    char escaped[LM_JSON_ESCAPE_MAX * LM_NAME_BYTES_MAX];
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
static void put_fields(struct line *line, const struct lm_trace_record *row, const char *model,
                       bool as_json) {
    const char *pair = as_json ? ",\"%s\":" : " %s=";
    const char *what = row->what ? row->what : "infer";
    put(line, as_json ? ",\"dialect\":\"%s\",\"request\":\"%s\"" : " %s %s", row->dialect, what);
    if (model) {
        put(line, pair, "model");
        put_text(line, model);
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

size_t lm_access_log_line(char *text, const struct lm_trace_record *row, const char *model,
                          uint64_t offset_ns, bool as_json) {
    struct line line = {.at = text};
    if (as_json) put(&line, "{\"time\":\"");
    /* When its answer was ready: lines are about in the order of their times. */
    put_time(&line, row->started_ns + row->total_ns + offset_ns);
    put(&line, as_json ? "\",\"peer\":\"" : " ");
    put_peer(&line, &row->client);
    if (as_json) put(&line, "\"");
    put_fields(&line, row, model, as_json);
    put(&line, as_json ? "}\n" : "\n");
    return line.used;
}
