/* http2_head.h: heads of HTTP/2 as those of HTTP/1.1, and back: what reads and writes heads need
 * not know which of both a client speaks. No state: any thread.
 */
#ifndef LM_WIRE_HTTP2_HEAD_H
#define LM_WIRE_HTTP2_HEAD_H

#include "wire/hpack.h"

enum lm_http2_verdict {
    LM_HTTP2_HEAD_GOOD,
    LM_HTTP2_HEAD_MALFORMED, /* no request: PROTOCOL_ERROR on its stream */
    LM_HTTP2_HEAD_TOO_LARGE
};

struct lm_http2_request {
    size_t bytes;     /* of the head of HTTP/1.1 */
    uint64_t content; /* bytes of the body; UINT64_MAX: its end tells */
    bool is_chunked;  /* the head says so: has_body, and no length is given */
    bool is_grpc;     /* content-type: application/grpc; then the head says no length */
};

/* Writes the head of HTTP/1.1 of these fields. The connection ends with the answer, as a stream
 * does, and nobody is asked for "100 Continue". */
enum lm_http2_verdict lm_http2_request_head(const struct lm_hpack_fields *fields, bool has_body,
                                            char *head, size_t room,
                                            struct lm_http2_request *request_out);

/* Writes the block of a reply's head, without what concerns connections of HTTP/1.1 alone; no
 * dynamic table is used. Returns its bytes; 0: there is no room. */
size_t lm_http2_reply_head(const char *head, size_t bytes, uint8_t *block, size_t room);

/* The block of a request's head, whose lines of HTTP/1.1 are in pieces: POST and a path, Host, and
 * whole lines. What stands behind Authorization is never kept by those between. Returns its bytes;
 * 0: there is no room. */
size_t lm_http2_request_block(const struct lm_slice *pieces, uint32_t count, bool is_tls,
                              uint8_t *block, size_t room);

/* Writes the head of HTTP/1.1 of an answer's fields, or says in `why` what was expected instead.
 * `ends`: it has no body. Returns its bytes; 0: it is none. */
size_t lm_http2_answer_head(const struct lm_hpack_fields *fields, bool ends, char *head,
                            size_t room, char *why, size_t why_bytes);

#endif
