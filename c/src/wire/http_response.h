/* http_response.h: the head of an HTTP/1.1 answer, bytes to struct (RFC 9112), as a client reads
 * it that passes it on. Slices point into the caller's bytes. No state: any thread.
 */
#ifndef LM_WIRE_HTTP_RESPONSE_H
#define LM_WIRE_HTTP_RESPONSE_H

#include "wire/http_parser.h"

/* How the end of its body is told. */
enum lm_http_framing {
    LM_HTTP_FRAMED_BY_LENGTH, /* also where it has none */
    LM_HTTP_FRAMED_BY_CHUNKS,
    LM_HTTP_FRAMED_BY_CLOSE
};

struct lm_http_response {
    uint32_t status; /* 100..599 */
    enum lm_http_framing framing;
    uint64_t length;
    bool keep_alive;
    uint32_t keep_alive_s; /* that an idle connection stays open, as it says; 0: it does not */
    bool retry_after;      /* it says when to come again */
    struct lm_slice reason;
    struct lm_slice fields; /* all lines, each with its end */
};

/* As lm_http_parse_head: > 0: the bytes of the head; 0: more are needed; < 0: it is none, and `why`
 * says what was expected. `is_head`: it answers a HEAD, and so has no body. */
int lm_http_parse_response(const char *bytes, size_t count, bool is_head,
                           struct lm_http_response *response_out, char *why, size_t why_bytes);

/* The next line of the fields that a proxy passes on: not those about the connection, or about how
 * the body is framed, nor those that it says itself. Its name, its value, and both with the line's
 * end. false: there are no more. */
struct lm_http_field {
    struct lm_slice name, value, line;
};
bool lm_http_next_passed(struct lm_slice *fields, struct lm_http_field *field_out);

#endif
