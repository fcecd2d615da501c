/* http_refuse.h: how HTTP requests that are not let in are answered. I/O thread only. */
#ifndef LM_DIALECTS_HTTP_REFUSE_H
#define LM_DIALECTS_HTTP_REFUSE_H

#include "flow/refusal.h"

struct lm_http_block;

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
/* The same of a request that is not read whole: a head that is not whole counts as a request here,
 * since it is answered. */
void lm_http_refuse_unread(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                           const char *why);
/* A block, if need be that of the connection that has collected a head in one for the longest time,
 * which is refused. NULL: all blocks are of requests that wait. */
struct lm_http_block *lm_http_refuse_for_block(struct lm_io *io, struct lm_connection *connection);
/* Ends a connection in the middle of a request's body, with an answer where there can be one. */
void lm_http_give_up(struct lm_io *io, struct lm_connection *connection, enum lm_status status,
                     const char *why);

/* A head is read, good or bad: a request of HTTP/1.1, or in a stream of HTTP/2. */
void lm_http_count(struct lm_io *io, const struct lm_connection *connection);

#endif
