/* http_code.c: see http_code.h. */
#include "dialects/http_code.h"

#include <stddef.h>

uint32_t lm_http_code(enum lm_status status) {
    switch (status) {
    case LM_STATUS_OK: return 200;
    case LM_STATUS_BAD_REQUEST: return 400;
    case LM_STATUS_UNKNOWN_MODEL: return 404;
    case LM_STATUS_TOO_LARGE: return 413;
    case LM_STATUS_UNAUTHORISED: return 401;
    case LM_STATUS_RATE_LIMITED: return 429;
    case LM_STATUS_INFERENCE_FAILED: return 500;
    case LM_STATUS_OVERLOADED:
    case LM_STATUS_DEADLINE:
    case LM_STATUS_SHUTTING_DOWN: return 503;
    }
    return 500;
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
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        if (known[k].code == code) return known[k].reason;
    }
    return "Error";
}
