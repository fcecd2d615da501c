/* http.h: the HTTP/1.1 side of the life of a request: what lies between io.h's doors and the
 * parsers of parts/. A connection that speaks HTTP has one request at a time with the workers, so
 * that replies keep the order of their requests.
 */
#ifndef LM_DIALECTS_HTTP_H
#define LM_DIALECTS_HTTP_H

#include "flow/io.h"
#include "parts/http_parser.h"

/* Where the head, or the JSON before the blobs, of one request is put together. */
struct lm_http_block {
    uint32_t connection; /* LM_NO_CONNECTION: free */
    uint32_t used;       /* bytes */
    uint64_t taken_ns;
    uint16_t next_free;
    struct lm_oip_request asked; /* of a request that waits for a slot */
    char bytes[LM_HTTP_HEAD_BYTES_MAX + LM_OIP_PADDING];
};

_Static_assert(LM_HTTP_JSON_BYTES_MAX <= LM_HTTP_HEAD_BYTES_MAX, "a block holds either");

/* http_receive.c: each returns how many of the bytes it took. */
size_t lm_http_take_head(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                         size_t count);
size_t lm_http_take_json(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                         size_t count);
size_t lm_http_take_chunks(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                           size_t count);
size_t lm_http_drop_chunks(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                           size_t count);
/* The connection's block, or NULL. */
struct lm_http_block *lm_http_block(struct lm_io *io, const struct lm_connection *connection);
struct lm_http_block *lm_http_block_take(struct lm_io *io, struct lm_connection *connection);
void lm_http_block_give(struct lm_io *io, struct lm_connection *connection);

/* http_admit.c: decides over a head, over the JSON before the blobs, over a chunked body. */
void lm_http_admit(struct lm_io *io, struct lm_connection *connection,
                   const struct lm_http_head *head);
void lm_http_admit_json(struct lm_io *io, struct lm_connection *connection, const char *text);
void lm_http_admit_chunked(struct lm_io *io, struct lm_connection *connection,
                           struct lm_request *request);
/* Tries again to find a slot for a request that waits for one. */
void lm_http_retry(struct lm_io *io, struct lm_connection *connection);

/* http_refuse.c */
/* Whether a name or a word of a header is this one, in whatever case. */
bool lm_http_equals(const char *at, size_t bytes, const char *word);
/* Whether the client may ask this host for this route; its key, if any, is in the call. false:
 * answered. */
bool lm_http_authorise(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_head *head, struct lm_slice host);
/* The state after an answer of one's own: what is left of the body is dropped first. */
void lm_http_skip_body(struct lm_io *io, struct lm_connection *connection);
/* Refuse a request whose end is known: the rest of its body is dropped, the connection goes on. */
void lm_http_refuse_code(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                         const char *headers, const char *why);
void lm_http_refuse_status(struct lm_io *io, struct lm_connection *connection,
                           enum lm_status status, const char *why);
void lm_http_refuse_request(struct lm_io *io, struct lm_connection *connection,
                            const struct lm_refusal *refusal);
/* Refuses and ends the connection: the end of the request is in doubt. */
void lm_http_refuse_close(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                          const char *why);

/* Ends a connection in the middle of a request's body, with an answer: 408 or 503. */
void lm_http_give_up(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                     const char *why);

/* http_answer.c: what the I/O thread answers itself. */
struct lm_http_answer {
    uint32_t code;
    const char *type;    /* NULL: application/json */
    const char *headers; /* whole lines, or NULL */
    const char *body;
    size_t body_bytes;
    bool body_is_shared; /* lives as long as the server */
    const char *why;     /* for the access log; NULL: nothing went wrong */
};
void lm_http_answer(struct lm_io *io, struct lm_connection *connection,
                    const struct lm_http_answer *answer);
/* {"error": why} */
void lm_http_answer_error(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                          const char *headers, const char *why);
/* Everything that is no inference: what the call asks for. */
void lm_http_answer_route(struct lm_io *io, struct lm_connection *connection);

/* http_figures.c */
size_t lm_http_figures_bytes_max(const struct lm_shared *shared);
void lm_http_answer_figures(struct lm_io *io, struct lm_connection *connection);

/* http_reply.c: composed by whoever ran the request. */
uint32_t lm_http_code(enum lm_status status);
const char *lm_http_reason(uint32_t code);
void lm_http_reply_outputs(struct lm_request *request, const void *const *data, const size_t *bytes,
                           size_t shape_block_bytes);
void lm_http_reply_text(struct lm_request *request, enum lm_status status, const char *text);
/* Reads the JSON of a request's text into its tensors. false: the reply is composed, an error. */
bool lm_http_read_text(struct lm_oip_parser *parser, struct lm_request *request);

#endif
