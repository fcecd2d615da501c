/* client_http_answers.c: what a simulated HTTP client reads, and whether it is right. */
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "dialects/http_code.h"
#include "formats/oip_metadata.h"

struct answer {
    uint32_t code;
    uint32_t head_bytes;
    uint32_t body_bytes;
    int64_t json_bytes; /* -1: not said */
    bool close;
};

/* A header's value, or NULL. `at` is terminated. */
static const char *header(const char *at, const char *name) {
    const char *found = strstr(at, name);
    return found ? found + strlen(name) : NULL;
}

/* Reads the head; false: it is not whole. */
static bool read_head(struct client *client, struct answer *answer) {
    char head[1024];
    uint32_t bytes = client->in_bytes < sizeof head - 1 ? client->in_bytes : sizeof head - 1;
    memcpy(head, client->in, bytes);
    head[bytes] = '\0';
    char *end = strstr(head, "\r\n\r\n");
    if (memcmp(head, "HTTP/1.1 ", bytes < 9 ? bytes : 9) != 0)
        client_fail(client, "not an answer", 0, 0);
    if (!end) {
        if (bytes == sizeof head - 1) client_fail(client, "a head without an end", bytes, 0);
        return false;
    }
    end[2] = '\0';
    const char *length = header(head, "\r\nContent-Length: ");
    const char *json = header(head, "\r\nInference-Header-Content-Length: ");
    *answer = (struct answer){.code = (uint32_t)atoi(head + 9),
                              .head_bytes = (uint32_t)(end + 4 - head),
                              .json_bytes = json ? atoll(json) : -1,
                              .close = header(head, "\r\nConnection: close") != NULL};
    if (!length && answer->code != 100) client_fail(client, "no Content-Length", 0, 0);
    if (length) answer->body_bytes = (uint32_t)atoi(length);
    if (answer->body_bytes > 60000) client_fail(client, "a body too large", answer->body_bytes, 0);
    return true;
}

static bool code_is_right(const struct expect *expect, uint32_t code) {
    if (code == expect->code) return true;
    for (uint32_t s = LM_STATUS_BAD_REQUEST; s <= LM_STATUS_SHUTTING_DOWN; s++) {
        if ((expect->statuses & STATUS(s)) &&
            lm_http_code(LM_ROUTE_INFER, (enum lm_status)s, sim_plan.overload_status) == code)
            return true;
    }
    return false;
}

/* The numbers after the next "data":[ from `at` on; where they end. */
static const char *check_values(const struct client *client, const struct expect *expect,
                                uint32_t output, const char *at) {
    static const char mark[] = "\"data\":[";
    at = strstr(at, mark);
    if (!at) client_fail(client, "an output without values, id", expect->id, output);
    at += sizeof mark - 1;
    for (uint32_t f = 0; f < client_floats(expect, output); f++) {
        char *end;
        float value = strtof(at, &end);
        if (end == at || value != 2 * client_value(expect, output, f))
            client_fail(client, "a wrong output in JSON, at and id", f, expect->id);
        at = *end == ',' ? end + 1 : end;
    }
    if (*at != ']') client_fail(client, "too many values, id", expect->id, output);
    return at;
}

/* All numbers of the reply, whatever is around them. */
static void check_rows(const struct client *client, const struct expect *expect, const char *at) {
    static const char begin[] = "{\"outputs\":";
    if (strncmp(at, begin, sizeof begin - 1) != 0)
        client_fail(client, "rows are answered otherwise, id", expect->id, 0);
    for (uint32_t o = 0; o < client_inputs(expect); o++) {
        for (uint32_t f = 0; f < client_floats(expect, o); f++) {
            char *end;
            at += strcspn(at, "-0123456789");
            float value = strtof(at, &end);
            if (end == at || value != 2 * client_value(expect, o, f))
                client_fail(client, "a wrong value of a row, at and id", f, expect->id);
            at = end;
        }
    }
    if (strpbrk(at, "-0123456789")) client_fail(client, "too many values, id", expect->id, 0);
}

static void check_infer(const struct client *client, const struct expect *expect,
                        const struct answer *answer, const uint8_t *body) {
    static char json[65536];
    char id[40];
    uint32_t json_bytes =
        answer->json_bytes < 0 ? answer->body_bytes : (uint32_t)answer->json_bytes;
    if (json_bytes > answer->body_bytes) client_fail(client, "JSON beyond the body", 0, 0);
    memcpy(json, body, json_bytes);
    json[json_bytes] = '\0';
    if (expect->named) {
        check_rows(client, expect, json);
        return;
    }
    snprintf(id, sizeof id, "\"id\":\"%llu\"", (unsigned long long)expect->id);
    bool is_raw = !strstr(json, "\"id\"");
    if (!is_raw && !strstr(json, id)) client_fail(client, "another's id, expected", expect->id, 0);
    if (expect->binary != (answer->json_bytes >= 0))
        client_fail(client, "JSON for binary or the other way, id", expect->id, 0);
    const char *at = json;
    uint32_t offset = json_bytes;
    for (uint32_t o = 0; o < client_inputs(expect); o++) {
        uint32_t bytes = client_floats(expect, o) * (uint32_t)sizeof(float);
        if (!expect->binary) {
            at = check_values(client, expect, o, at);
        } else if (offset + bytes > answer->body_bytes) {
            client_fail(client, "too few outputs, id", expect->id, 0);
        } else {
            client_check_output(client, expect, o, body + offset, bytes);
            offset += bytes;
        }
    }
    if (offset != answer->body_bytes) client_fail(client, "bytes after all, id", expect->id, 0);
}

static void check_stats(const struct client *client, const uint8_t *body, uint32_t bytes) {
    static const char begin[] = "{\"model_stats\":[{";
    uint32_t depth = 0;
    if (bytes < sizeof begin || memcmp(body, begin, sizeof begin - 1) != 0)
        client_fail(client, "statistics begin wrongly", bytes, 0);
    for (uint32_t b = 0; b < bytes; b++) {
        if (body[b] < ' ' || body[b] > '~')
            client_fail(client, "statistics hold junk at", b, body[b]);
        depth += body[b] == '{';
        depth -= body[b] == '}';
        if (depth == 0 && b + 1 < bytes) client_fail(client, "statistics end early, at", b, bytes);
    }
    if (depth) client_fail(client, "statistics have no end", bytes, 0);
}

static void check_body(const struct client *client, const struct expect *expect,
                       const struct answer *answer, const uint8_t *body) {
    uint32_t bytes = answer->body_bytes;
    if (answer->code >= 400) {
        if (bytes < 13 || memcmp(body, "{\"error\":\"", 10) != 0 ||
            memcmp(body + bytes - 2, "\"}", 2) != 0)
            client_fail(client, "an error without a sentence", answer->code, bytes);
        return;
    }
    switch (expect->kind) {
    case ASK_INFER: check_infer(client, expect, answer, body); break;
    case ASK_STATS: check_stats(client, body, bytes); break;
    default:
        if (bytes != (expect->document ? expect->document->bytes : 0) ||
            (bytes && memcmp(body, expect->document->text, bytes) != 0))
            client_fail(client, "another document", bytes, 0);
    }
}

static struct expect *next(struct client *client, uint32_t code) {
    if (client->answered == client->expect_count)
        client_fail(client, "an answer to nobody, code", code, 0);
    return &client->expects[client->answered];
}

/* Refusals for want of a place: at any time, in place of the next answer. */
static bool is_eviction(const struct answer *answer) {
    return answer->close && (answer->code == 408 || answer->code == 503);
}

void http_check(struct client *client, const struct expect *expect, uint32_t code, bool is_eviction,
                int64_t json_bytes, const uint8_t *body, uint32_t bytes) {
    const struct answer answer = {
        .code = code, .body_bytes = bytes, .json_bytes = json_bytes, .close = is_eviction};
    const uint32_t index = (uint32_t)(expect - client->expects);
    if (!code_is_right(expect, code) && !is_eviction)
        client_fail(client, "a wrong code, request", code, index);
    const uint32_t end = client->http2 ? expect->body : expect->end;
    if (code == 200 && expect->kind == ASK_INFER && client->out_sent < end)
        client_fail(client, "an answer before the request's end", index, 0);
    if (!expect->no_body) check_body(client, expect, &answer, body);
}

uint32_t http_take(struct client *client) {
    struct answer answer;
    if (!read_head(client, &answer)) return 0;
    struct expect *expect = next(client, answer.code);
    uint32_t index = client->answered;
    uint32_t begins = index ? client->expects[index - 1].end : 0;
    if (client->out_sent <= begins) client_fail(client, "an answer before the request", index, 0);
    if (answer.code == 100) {
        if (!expect->continues || client->continued)
            client_fail(client, "\"100 Continue\" for nobody, request", index, 0);
        client->continued = true;
        return answer.head_bytes;
    }
    /* A head that is not whole has no method. */
    bool no_body = expect->no_body && !is_eviction(&answer);
    uint32_t body = no_body ? 0 : answer.body_bytes;
    if (client->in_bytes < answer.head_bytes + body) return 0;
    if (is_eviction(&answer) && !no_body)
        check_body(client, expect, &answer, client->in + answer.head_bytes);
    else
        http_check(client, expect, answer.code, false, answer.json_bytes,
                   client->in + answer.head_bytes, answer.body_bytes);
    if (expect->ends && !answer.close) client_fail(client, "an end that is not said", index, 0);
    if (answer.close && !expect->ends && !expect->may_end && !is_eviction(&answer) && !sim_draining)
        client_fail(client, "an end without a reason", answer.code, index);
    client_answered(client, expect, answer.close);
    return answer.head_bytes + body;
}
