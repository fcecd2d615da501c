/* http_parser.h: the head of an HTTP/1.1 request, bytes to struct (RFC 9112, read strictly).
 *
 * No state, no memory, no socket. Slices point into the caller's bytes and live as long as those.
 * Where a body ends is never in doubt: what two readers might frame differently is refused, and the
 * connection ends there. Any thread.
 */
#ifndef LM_WIRE_HTTP_PARSER_H
#define LM_WIRE_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lm_slice {
    const char *at; /* into the caller's bytes; NULL when there is none */
    size_t bytes;
};

/* OTHER is well-formed and not served: 405 or 501, http_route.h says which. */
enum lm_http_method { LM_HTTP_GET, LM_HTTP_HEAD, LM_HTTP_POST, LM_HTTP_PUT, LM_HTTP_OTHER };

enum { LM_HTTP_JSON_ABSENT = -1, LM_HTTP_JSON_BAD = -2 };

struct lm_http_head {
    enum lm_http_method method;
    uint8_t minor;   /* HTTP/1.minor: 0 or 1 */
    uint8_t urgency; /* 1 + Priority's u, 0 to 7 (RFC 9218); 0: it says none */
    bool keep_alive;
    bool chunked;
    bool has_length;
    bool expect_continue;
    bool is_forwarded; /* a proxy stands between: Forwarded, Via, X-Forwarded-For, X-Real-IP */
    uint64_t content_length; /* 0 when absent; below 2^63 */
    /* Inference-Header-Content-Length, up to 2^62; ABSENT; or BAD (twice, negative, not a number,
     * larger): the caller answers 400 and keeps the connection. */
    int64_t json_bytes;
    uint32_t timeout_us; /* Grpc-Timeout, of an hour at most; 0: none, or longer */
    struct lm_slice method_name;
    struct lm_slice target; /* as sent: path and query, visible ASCII */
    /* Values without the white space around them. */
    struct lm_slice host;
    struct lm_slice authorization;
    struct lm_slice api_key; /* X-API-Key */
    struct lm_slice content_encoding;
    struct lm_slice origin;
    struct lm_slice fetch_site; /* Sec-Fetch-Site: where a browser says that a page stands */
    struct lm_slice traceparent, tracestate; /* W3C's Trace Context */
    struct lm_slice request_id;              /* X-Request-Id */
    struct lm_slice session;                 /* Lumen-Session: whose requests stay together */
    struct lm_slice load_format;             /* Endpoint-Load-Metrics-Format */
    struct lm_slice accept_encoding;         /* the first, when there are several */
};

/* Reads a head from the first of `count` bytes on; no byte past them is touched.
 *
 * > 0: the bytes of the head, the empty line included; head_out is filled in.
 *   0: more bytes are needed.
 * < 0: minus the status to answer before closing: 400, 414, 417, 431, 501 or 505. `why` then holds
 *      a sentence: what was expected, what was found (escaped, short).
 *
 * `seen` is 0 at first, then the `count` of the last call, which returned 0, on the same bytes: the
 * search for the end goes on there, after a look back over one line. The answer does not depend on
 * where the bytes were split. An error is reported at its first byte, or at the end of the line
 * whose value is wrong, or, when it takes the whole head to tell (no Host, two framings, too many
 * headers, an unknown expectation), at the end. */
int lm_http_parse_head(const char *bytes, size_t count, size_t seen, struct lm_http_head *head_out,
                       char *why, size_t why_bytes);

#endif
