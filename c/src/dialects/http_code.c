/* http_code.c: see http_code.h. */
#include "dialects/http_code.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "formats/http_route.h"
#include "lumen.h"

/* Whose clients ask on a route. */
enum family { PLAIN, OPENAI, TEI, COHERE };

static enum family family_of(uint8_t route) {
    static const uint8_t families[] = {
        [LM_ROUTE_EMBEDDINGS] = OPENAI,  [LM_ROUTE_TEXTS] = TEI,
        [LM_ROUTE_EMBED] = TEI,          [LM_ROUTE_PREDICT_TEXT] = TEI,
        [LM_ROUTE_SIMILARITY] = TEI,     [LM_ROUTE_RERANK] = TEI,
        [LM_ROUTE_RERANK_V1] = COHERE,   [LM_ROUTE_RERANK_V2] = COHERE,
        [LM_ROUTE_ENTITIES] = TEI,       [LM_ROUTE_TOKENIZE] = TEI,
        [LM_ROUTE_DECODE] = TEI,         [LM_ROUTE_INFO] = TEI,
        [LM_ROUTE_EMBED_ALL] = TEI,      [LM_ROUTE_CHAT] = OPENAI,
        [LM_ROUTE_COMPLETIONS] = OPENAI, [LM_ROUTE_RESPONSES] = OPENAI};
    return route < sizeof families ? (enum family)families[route] : PLAIN;
}

uint32_t lm_http_code(uint8_t route, enum lm_status status, uint32_t overloaded) {
    const enum family family = family_of(route);
    const bool is_call = route == LM_ROUTE_GRPC_INFER; /* whose clients ask again where it is 503 */
    const uint32_t busy = overloaded == LUMEN_OVERLOAD_429 && !is_call ? 429 : 503;
    switch (status) {
    case LM_STATUS_OK: return 200;
    case LM_STATUS_BAD_REQUEST: return family == TEI ? 422 : 400;
    case LM_STATUS_UNKNOWN_MODEL: return 404;
    case LM_STATUS_TOO_LARGE: return 413;
    case LM_STATUS_UNAUTHORISED: return 401;
    case LM_STATUS_RATE_LIMITED: return 429;
    case LM_STATUS_INFERENCE_FAILED: return family == TEI ? 424 : 500;
    case LM_STATUS_OVERLOADED: return family == TEI ? 429 : busy;
    case LM_STATUS_DEADLINE: return family == OPENAI || is_call ? 504 : busy;
    case LM_STATUS_SHUTTING_DOWN: return 503;
    }
    return 500;
}

const char *lm_http_retry_lines(uint8_t route, uint32_t code) {
    const bool is_late = code == 500 || code == 504; /* it would be again */
    if (family_of(route) == OPENAI && is_late) return "x-should-retry: false\r\n";
    return code == 503 || code == 429 ? "Retry-After: 1\r\n" : "";
}

static const char *openai_type(uint32_t code) {
    switch (code) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 500:
    case 502:
    case 503:
    case 504: return "server_error";
    }
    return "invalid_request_error";
}

static const char *tei_type(uint32_t code) {
    return code == 424 || code == 500   ? "Backend"
           : code == 429 || code == 503 ? "Overloaded"
                                        : "Validation";
}

size_t lm_http_error_body(uint8_t route, uint32_t code, const char *why, char *out, size_t room) {
    const char *start = "{\"error\":\"";
    char end[LM_HTTP_ERROR_BYTES] = "\"}";
    switch (family_of(route)) {
    case PLAIN: break;
    case OPENAI:
        start = "{\"error\":{\"message\":\"";
        snprintf(end, sizeof end, "\",\"type\":\"%s\",\"param\":null,\"code\":%s}}",
                 openai_type(code), code == 404 ? "\"model_not_found\"" : "null");
        break;
    case TEI: snprintf(end, sizeof end, "\",\"error_type\":\"%s\"}", tei_type(code)); break;
    case COHERE: start = "{\"message\":\""; break;
    }
    size_t used = strlen(start), written = 0;
    memcpy(out, start, used);
    (void)lm_json_escape(why, strlen(why), out + used, room - used - strlen(end), &written);
    used += written;
    memcpy(out + used, end, strlen(end));
    return used + strlen(end);
}

const char *lm_http_reason(uint32_t code) {
    static const struct {
        uint32_t code;
        const char *reason;
    } known[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {424, "Failed Dependency"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        if (known[k].code == code) return known[k].reason;
    }
    return "Error";
}
