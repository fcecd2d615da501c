/* client_http.c: HTTP's requests, good and bad, and what must come back, in their order. */
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "dialects/http_documents.h"

/* Text that is put together before its length is known. */
static char text[SIM_MAX_REQUEST_BYTES * 2];
static uint32_t text_bytes;

#define ADD(...) \
    (text_bytes += (uint32_t)snprintf(text + text_bytes, sizeof text - text_bytes, __VA_ARGS__))

static const char *const names[SIM_MODELS] = {"tiny", "wide", "picture", "pair", "sentence"};

/* ---- bodies ---- */

static void add_value(const struct expect *expect, uint32_t input, uint32_t at) {
    bool poison = at == 0 && input == 0 && (expect->statuses & STATUS(LM_STATUS_INFERENCE_FAILED));
    ADD("%g", poison ? (double)SIM_POISON : (double)client_value(expect, input, at));
}

static void add_values(const struct expect *expect, uint32_t input) {
    uint32_t count = client_floats(expect, input);
    ADD(",\"data\":[");
    for (uint32_t at = 0; at < count; at++) {
        if (at) ADD(",");
        add_value(expect, input, at);
    }
    ADD("]");
}

static const char *input_name(const struct expect *expect, uint32_t input) {
    return expect->model != 3 ? "x" : input == 0 ? "a" : "b";
}

/* Whole inputs with names: an array of rows each, of which the second input has no more than one
 * value each. */
static void write_rows(const struct expect *expect, uint64_t timeout_us) {
    text_bytes = 0;
    ADD("{\"inputs\":{");
    for (uint32_t i = 0; i < client_inputs(expect); i++) {
        uint32_t count = client_floats(expect, i), rows = i == 1 ? count : expect->rows;
        ADD("%s\"%s\":[", i ? "," : "", input_name(expect, i));
        for (uint32_t at = 0, each = count / rows; at < count; at++) {
            if (at) ADD(",");
            if (i != 1 && at % each == 0) ADD("[");
            add_value(expect, i, at);
            if (i != 1 && at % each == each - 1) ADD("]");
        }
        ADD("]");
    }
    ADD("}");
    if (timeout_us) ADD(",\"parameters\":{\"timeout\":%llu}", (unsigned long long)timeout_us);
    ADD("}");
}

/* The JSON of a request; inputs of which a bit is set in `blobs` come after it. */
static void write_json(const struct expect *expect, uint32_t blobs, uint64_t timeout_us) {
    static const char *const shapes[SIM_MODELS] = {"4", "300", "3,4,4", "2", ""};
    text_bytes = 0;
    ADD("{\"id\":\"%llu\",\"inputs\":[", (unsigned long long)expect->id);
    for (uint32_t i = 0; i < client_inputs(expect); i++) {
        ADD("%s{\"name\":\"%s\",\"datatype\":\"%s\",", i ? "," : "", input_name(expect, i),
            expect->files ? "BYTES" : "FP32");
        if (expect->files) {
            ADD("\"shape\":[%u]", expect->rows);
        } else if (i == 1) {
            ADD("\"shape\":[3]");
        } else if (expect->model == SIM_FREE_MODEL) {
            ADD("\"shape\":[%u,%u]", expect->rows, expect->length);
        } else {
            ADD("\"shape\":[%u,%s]", expect->rows, shapes[expect->model]);
        }
        if (blobs & 1u << i) {
            uint32_t bytes =
                expect->files ? expect->rows * (4 + SIM_FILE_BYTES) : client_floats(expect, i) * 4;
            ADD(",\"parameters\":{\"binary_data_size\":%u}", bytes);
        } else {
            add_values(expect, i);
        }
        ADD("}");
    }
    ADD("],\"parameters\":{\"binary_data_output\":%s", expect->binary ? "true" : "false");
    if (timeout_us) ADD(",\"timeout\":%llu", (unsigned long long)timeout_us);
    ADD("}}");
    /* More than is parsed before the slot is found, once in a while. */
    if (blobs && sim_one_in(20)) ADD("%*s", 8200, "");
}

static void put_text(struct client *client, const char *line) {
    client_put(client, line, strlen(line));
}

/* What was put since `from`, again in chunks. */
static void make_chunks(struct client *client, uint32_t from) {
    static uint8_t body[2 * SIM_MAX_REQUEST_BYTES];
    uint32_t bytes = client->out_bytes - from;
    memcpy(body, client->out + from, bytes);
    client->out_bytes = from;
    for (uint32_t at = 0; at < bytes;) {
        char line[64];
        uint32_t size = 1 + sim_below(sim_below(2) ? 20 : 3000);
        if (size > bytes - at) size = bytes - at;
        snprintf(line, sizeof line, "%x%s\r\n", size, sim_one_in(5) ? ";a=b" : "");
        put_text(client, line);
        client_put(client, body + at, size);
        put_text(client, "\r\n");
        at += size;
    }
    put_text(client, sim_one_in(4) ? "0\r\nX-Trailer: 1\r\n\r\n" : "0\r\n\r\n");
}

/* ---- inference ---- */

enum form { FORM_VALUES, FORM_BLOBS, FORM_MIXED, FORM_RAW, FORM_ROWS, FORM_FILE };

static enum form draw_form(const struct expect *expect) {
    enum form form = (enum form)sim_below(5);
    if (expect->files) form = sim_below(2) ? FORM_FILE : FORM_BLOBS;
    if (form == FORM_MIXED && expect->model != 3) form = FORM_BLOBS;
    if (form == FORM_RAW && expect->model == 3) form = FORM_BLOBS;
    if ((form == FORM_VALUES || form == FORM_ROWS) && expect->model == 1 && expect->rows > 2)
        form = FORM_BLOBS;
    return form;
}

/* One file is the body, or a part of a form. */
static void put_file(struct client *client, const struct expect *expect) {
    static const char head[] = "--x\r\nContent-Disposition: form-data; name=a; filename=b\r\n\r\n";
    bool in_form = sim_one_in(3);
    if (in_form) put_text(client, head);
    uint32_t at = client->out_bytes, length = sizeof(uint32_t);
    client_put_input(client, expect, 0);
    client->out_bytes -= length; /* which the body says */
    memmove(client->out + at, client->out + at + length, client->out_bytes - at);
    if (in_form) put_text(client, "\r\n--x--\r\n");
}

static void put_body(struct client *client, const struct expect *expect, uint32_t blobs) {
    client_put(client, text, text_bytes);
    for (uint32_t i = 0; i < client_inputs(expect); i++) {
        if (blobs & 1u << i) client_put_input(client, expect, i);
    }
}

static void put_infer(struct client *client, struct expect *expect, enum form form, bool chunked,
                      const char *headers) {
    const bool no_blobs = form == FORM_VALUES || form == FORM_ROWS || form == FORM_FILE;
    uint32_t blobs = no_blobs ? 0 : form == FORM_MIXED ? 1u + sim_below(2) : 3;
    uint64_t timeout_us = sim_one_in(10) ? 1 + sim_below(sim_below(2) ? 300 : 200000) : 0;
    char head[512];
    bool pixels = expect->pixels;
    expect->pixels = pixels && form == FORM_RAW;
    if (timeout_us && form != FORM_RAW && form != FORM_FILE)
        expect->statuses |= STATUS(LM_STATUS_DEADLINE);
    text_bytes = 0;
    if (form == FORM_ROWS) {
        write_rows(expect, timeout_us);
    } else if (form != FORM_RAW && form != FORM_FILE) {
        write_json(expect, blobs, timeout_us);
    }
    uint32_t json = text_bytes, begin = client->out_bytes;
    if (form == FORM_FILE) put_file(client, expect);
    put_body(client, expect, blobs);
    if (chunked) make_chunks(client, begin);
    uint32_t bytes = client->out_bytes - begin;
    uint8_t *body = malloc(bytes);
    memcpy(body, client->out + begin, bytes);
    client->out_bytes = begin;

    const char *version = sim_below(2) ? "/versions/1" : "";
    snprintf(head, sizeof head, "%s /%s/models/%s%s%s HTTP/1.1\r\nHost: localhost\r\n%s",
             form == FORM_FILE && sim_below(2) ? "PUT" : "POST", form == FORM_ROWS ? "v1" : "v2",
             names[expect->model], version, form == FORM_ROWS ? ":predict" : "/infer", headers);
    put_text(client, head);
    if (chunked) {
        put_text(client, "Transfer-Encoding: chunked\r\n");
    } else {
        snprintf(head, sizeof head, "Content-Length: %u\r\n", bytes);
        put_text(client, head);
    }
    if (blobs || (form != FORM_ROWS && form != FORM_FILE && sim_below(2))) {
        snprintf(head, sizeof head, "Inference-Header-Content-Length: %u\r\n", json);
        put_text(client, head);
    }
    put_text(client, "\r\n");
    expect->body = client->out_bytes;
    client_put(client, body, bytes);
    free(body);
}

static void draw_infer(struct client *client, bool is_last) {
    struct expect *expect = client_expect(client, ASK_INFER);
    expect->model = sim_below(SIM_MODELS);
    uint32_t most = sim_models.models[expect->model]->max_rows;
    expect->rows = 1 + sim_below(sim_below(2) ? 1 : most);
    expect->code = 200;
    expect->binary = sim_below(2);
    expect->pixels = expect->model == 2 && sim_below(2);
    expect->files = expect->model == 2 && !expect->pixels && sim_below(2);
    expect->statuses = STATUS_REFUSALS;
    if (sim_plan.default_timeout_ns) expect->statuses |= STATUS(LM_STATUS_DEADLINE);
    if (sim_plan.rate > 0) expect->statuses |= STATUS(LM_STATUS_RATE_LIMITED);
    enum form form = draw_form(expect);
    expect->named = form == FORM_ROWS;
    if (form == FORM_ROWS || form == FORM_FILE) expect->binary = false;
    if (form == FORM_FILE) expect->rows = 1;
    if (form == FORM_RAW) {
        expect->rows = 1;
        expect->binary = true;
    } else if (expect->files && sim_one_in(6)) {
        expect->broken = true;
        expect->code = 400;
        expect->statuses |= STATUS(LM_STATUS_BAD_REQUEST);
    } else if (sim_one_in(12)) {
        expect->code = 500;
        expect->statuses |= STATUS(LM_STATUS_INFERENCE_FAILED);
    }
    expect->ends = sim_one_in(is_last ? 3 : 15);
    bool chunked = form != FORM_RAW && sim_one_in(5);
    expect->continues = sim_one_in(8);
    char headers[128];
    snprintf(headers, sizeof headers, "%s%s", expect->ends ? "Connection: close\r\n" : "",
             expect->continues ? "Expect: 100-continue\r\n" : "");
    /* A refusal ends the connection, where nobody can tell whether the body comes. */
    expect->may_end = expect->continues || chunked;
    put_infer(client, expect, form, chunked, headers);
}

/* ---- everything else ---- */

static void draw_document(struct client *client) {
    struct expect *expect = client_expect(client, ASK_DOCUMENT);
    const struct lm_http_documents *documents = sim_models.documents;
    static char ready_text[] = "{\"ready\":true}";
    static const struct lm_oip_document ready = {ready_text, sizeof ready_text - 1};
    const struct lm_oip_document *found[] = {&documents->page, &documents->server,
                                             &documents->of[1]->metadata, &documents->of[2]->config,
                                             &ready};
    static const char *const paths[] = {"/", "/v2", "/v2/models/wide",
                                        "/v2/models/picture/versions/1/config", "/v2/health/ready"};
    uint32_t which = sim_below(5);
    char head[256];
    expect->code = 200;
    expect->document = found[which];
    expect->no_body = sim_one_in(4);
    if (which == 4) expect->statuses = STATUS(LM_STATUS_SHUTTING_DOWN);
    bool whole = sim_one_in(4), chunked = sim_one_in(4);
    snprintf(head, sizeof head, "%s %s%s HTTP/1.1\r\nHost: %s\r\nX-Filler: %*s\r\n%s\r\n",
             expect->no_body ? "HEAD" : "GET", whole ? "http://[::1]:8000" : "", paths[which],
             whole ? "ignored" : "[::1]:8000", 1 + (int)sim_below(60), "x",
             chunked ? "Transfer-Encoding: chunked\r\n" : "");
    put_text(client, head);
    if (!chunked) return;
    uint32_t begin = client->out_bytes;
    for (uint32_t b = sim_below(300); b > 0; b--) client_put(client, "\xee", 1);
    make_chunks(client, begin);
}

static void draw_stats(struct client *client) {
    struct expect *expect = client_expect(client, ASK_STATS);
    expect->code = 200;
    put_text(client, sim_below(2) ? "GET /v2/models/stats HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
                                  : "GET /v2/models/tiny/stats HTTP/1.1\r\nHost: [::1]\r\n\r\n");
}

enum { GOES_ON, ENDS };
struct bad {
    uint32_t code;
    int end;
    const char *head;
    uint32_t junk; /* bytes of body */
};

static const struct bad bads[] = {
    {404, GOES_ON, "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 0},
    {405, GOES_ON, "DELETE /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 0},
    {501, GOES_ON, "BREW /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 0},
    {501, GOES_ON, "LINK /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 0},
    {421, GOES_ON, "GET /v2 HTTP/1.1\r\nHost: evil.example\r\n\r\n", 0},
    {421, GOES_ON, "GET https://localhost/v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 0},
    {403, GOES_ON, "GET /v2 HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 0},
    {404, GOES_ON,
     "POST /v2/models/nobody/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000\r\n\r\n",
     3000},
    {404, GOES_ON, "GET /v2/models/tiny/versions/7 HTTP/1.1\r\nHost: localhost\r\n\r\n", 0},
    {415, GOES_ON,
     "POST /v2/models/tiny/infer HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: br\r\n"
     "Content-Length: 700\r\n\r\n",
     700},
    {501, GOES_ON, "POST /v2/repository/models/tiny/load HTTP/1.1\r\nHost: localhost\r\n\r\n", 0},
    {400, ENDS, "GET /v2 HTTP/1.1\r\n\r\n", 0},
    {400, ENDS,
     "POST /v2/models/tiny/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
     "Transfer-Encoding: chunked\r\n\r\n",
     4},
    {413, ENDS,
     "POST /v2/models/tiny/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n",
     30},
    {505, ENDS, "GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 0},
    {400, ENDS, "GET /\r\n\r\n", 0},
    {400, ENDS, "LMN2\n", 0},
    {417, ENDS,
     "POST /v2/models/tiny/infer HTTP/1.1\r\nHost: localhost\r\nExpect: nothing\r\n"
     "Content-Length: 0\r\n\r\n",
     0},
};

static const struct bad *draw_which(void) {
    return &bads[sim_below(sizeof bads / sizeof bads[0])];
}

static void put_bad(struct client *client, const struct bad *bad) {
    struct expect *expect = client_expect(client, ASK_BAD);
    expect->code = bad->code;
    expect->ends = bad->end == ENDS;
    put_text(client, bad->head);
    for (uint32_t b = 0; b < bad->junk; b++) client_put(client, "\xee", 1);
}

static void draw_bad(struct client *client, bool is_last) {
    const struct bad *bad = draw_which();
    while (!is_last && bad->end == ENDS && !sim_one_in(6)) bad = draw_which();
    put_bad(client, bad);
}

/* A head that is right with a body that is not: known before a slot is taken, or in a worker. */
static void draw_bad_body(struct client *client) {
    static const char *const bodies[] = {
        "{",
        "[1,2]",
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1,2,3]}]}",
        "{\"inputs\":[{\"name\":\"z\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1,2,3,4]}]}",
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[1,4],\"data\":[1,2,3,4]}]}",
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],"
        "\"parameters\":{\"binary_data_size\":16}}]}",
    };
    struct expect *expect = client_expect(client, ASK_BAD);
    const char *body = bodies[sim_below(6)];
    bool chunked = sim_one_in(3);
    uint32_t blob = sim_below(2) ? 1 + sim_below(40) : 0; /* 16 would be right for the last one */
    char head[256];
    expect->code = 400;
    expect->statuses = STATUS_REFUSALS | STATUS(LM_STATUS_DEADLINE) |
                       STATUS(LM_STATUS_RATE_LIMITED) | STATUS(LM_STATUS_TOO_LARGE);
    expect->may_end = chunked;
    if (blob == 16 || chunked) blob = 0;
    snprintf(head, sizeof head, "POST /v2/models/tiny/infer HTTP/1.1\r\nHost: localhost\r\n");
    put_text(client, head);
    if (blob) {
        snprintf(head, sizeof head, "Inference-Header-Content-Length: %zu\r\n", strlen(body));
        put_text(client, head);
    }
    snprintf(head, sizeof head, "Content-Length: %zu\r\n\r\n", strlen(body) + blob);
    put_text(client, chunked ? "Transfer-Encoding: chunked\r\n\r\n" : head);
    uint32_t begin = client->out_bytes;
    put_text(client, body);
    for (uint32_t b = 0; b < blob; b++) client_put(client, "\xee", 1);
    if (chunked) make_chunks(client, begin);
}

/* Chunks that are none: the connection ends. */
static void draw_bad_chunks(struct client *client) {
    struct expect *expect = client_expect(client, ASK_BAD);
    expect->code = 400;
    expect->ends = true;
    if (sim_below(2)) { /* the route needs no body, and is no success without a whole one */
        put_text(client, "GET /v2 HTTP/1.1\r\n");
    } else {
        expect->statuses = STATUS_REFUSALS | STATUS(LM_STATUS_DEADLINE) |
                           STATUS(LM_STATUS_RATE_LIMITED) | STATUS(LM_STATUS_TOO_LARGE);
        put_text(client, "POST /v2/models/tiny/infer HTTP/1.1\r\n");
    }
    put_text(client, "Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "5\r\n{\"inp\r\n-3\r\nuts\r\n");
}

void http_draw(struct client *client, bool is_last) {
    uint32_t drawn = sim_below(100);
    if (drawn < 60) {
        draw_infer(client, is_last);
    } else if (drawn < 72) {
        draw_document(client);
    } else if (drawn < 78) {
        draw_stats(client);
    } else if (drawn < 86) {
        draw_bad_body(client);
    } else if (drawn < 90 && (is_last || sim_one_in(6))) {
        draw_bad_chunks(client);
    } else {
        draw_bad(client, is_last);
    }
}

void http_draw_streamed(struct client *client) {
    uint32_t drawn = sim_below(100);
    const struct bad *bad = draw_which();
    while (bad->end == ENDS || strstr(bad->head, "https:")) bad = draw_which();
    if (drawn < 60) {
        draw_infer(client, false);
    } else if (drawn < 72) {
        draw_document(client);
    } else if (drawn < 78) {
        draw_stats(client);
    } else if (drawn < 88) {
        draw_bad_body(client);
    } else {
        put_bad(client, bad);
    }
}
