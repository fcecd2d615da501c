/* test_http_code.c: how refusals are said: the codes and fields that the clients of each route look
 * for, and a body that is whole in whatever room.
 */
#include "dialects/http_code.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "formats/http_route.h"
#include "lumen.h"

static struct check_guard guard;

/* The sentence is cut between two characters. */
static void bodies_are_whole(void) {
    static const char whole[] = "{\"error\":\"a\\u000a\xc3\xa9\"}";
    static const size_t characters[] = {0, 1, 7, 9}; /* bytes after each */
    for (size_t room = 12; room <= 22; room++) {
        char *at = (char *)check_guard_tail(&guard, room), expected[32];
        size_t most = room - 12, fits = 0;
        for (size_t c = 0; c < 4; c++)
            if (characters[c] <= most) fits = characters[c];
        snprintf(expected, sizeof expected, "%.*s\"}", (int)(10 + fits), whole);
        CHECK_AT("room for %zu bytes", room);
        CHECK(lm_http_error_body(LM_ROUTE_INFER, 400, "a\n\xc3\xa9", at, room) == strlen(expected));
        CHECK(memcmp(at, expected, strlen(expected)) == 0);
    }
}

static void each_form(void) {
    static const struct {
        uint8_t route;
        enum lm_status status;
        uint32_t code;
        const char *body, *lines;
    } cases[] = {
        {LM_ROUTE_INFER, LM_STATUS_BAD_REQUEST, 400, "{\"error\":\"why\"}", ""},
        {LM_ROUTE_NONE, LM_STATUS_OVERLOADED, 503, "{\"error\":\"why\"}", "Retry-After: 1\r\n"},
        {LM_ROUTE_EMBEDDINGS, LM_STATUS_UNKNOWN_MODEL, 404,
         "{\"error\":{\"message\":\"why\",\"type\":\"not_found_error\",\"param\":null,"
         "\"code\":\"model_not_found\"}}",
         ""},
        {LM_ROUTE_EMBEDDINGS, LM_STATUS_DEADLINE, 504,
         "{\"error\":{\"message\":\"why\",\"type\":\"server_error\",\"param\":null,\"code\":null}}",
         "x-should-retry: false\r\n"},
        {LM_ROUTE_EMBEDDINGS, LM_STATUS_OVERLOADED, 503,
         "{\"error\":{\"message\":\"why\",\"type\":\"server_error\",\"param\":null,\"code\":null}}",
         "Retry-After: 1\r\n"},
        {LM_ROUTE_EMBED, LM_STATUS_BAD_REQUEST, 422,
         "{\"error\":\"why\",\"error_type\":\"Validation\"}", ""},
        {LM_ROUTE_RERANK, LM_STATUS_OVERLOADED, 429,
         "{\"error\":\"why\",\"error_type\":\"Overloaded\"}", "Retry-After: 1\r\n"},
        {LM_ROUTE_PREDICT_TEXT, LM_STATUS_INFERENCE_FAILED, 424,
         "{\"error\":\"why\",\"error_type\":\"Backend\"}", ""},
        {LM_ROUTE_RERANK_V2, LM_STATUS_TOO_LARGE, 413, "{\"message\":\"why\"}", ""},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        char body[3 + LM_HTTP_ERROR_BYTES];
        const uint32_t code = lm_http_code(cases[c].route, cases[c].status, LUMEN_OVERLOAD_503);
        CHECK_AT("case %zu", c);
        CHECK(code == cases[c].code);
        const size_t bytes = lm_http_error_body(cases[c].route, code, "why", body, sizeof body);
        CHECK(bytes == strlen(cases[c].body) && memcmp(body, cases[c].body, bytes) == 0);
        CHECK(strcmp(lm_http_retry_lines(cases[c].route, code), cases[c].lines) == 0);
    }
}

/* The other code of lack of room and of time, where clients do not look for one of their own. */
static void overloaded(void) {
    const uint32_t other = LUMEN_OVERLOAD_429;
    CHECK(lm_http_code(LM_ROUTE_INFER, LM_STATUS_OVERLOADED, other) == 429);
    CHECK(lm_http_code(LM_ROUTE_INFER, LM_STATUS_DEADLINE, other) == 429);
    CHECK(lm_http_code(LM_ROUTE_INFER, LM_STATUS_SHUTTING_DOWN, other) == 503);
    CHECK(lm_http_code(LM_ROUTE_INFER, LM_STATUS_INFERENCE_FAILED, other) == 500);
    CHECK(lm_http_code(LM_ROUTE_EMBEDDINGS, LM_STATUS_DEADLINE, other) == 504);
    CHECK(lm_http_code(LM_ROUTE_GRPC_INFER, LM_STATUS_OVERLOADED, other) == 503);
}

int main(void) {
    check_guard_open(&guard, 1 << 14);
    bodies_are_whole();
    each_form();
    overloaded();
    check_guard_close(&guard);
    return check_finish("test_http_code");
}
