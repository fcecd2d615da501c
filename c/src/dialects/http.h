/* http.h: the HTTP/1.1 side of a request's life: what lies between flow/ and the parsers of parts/.
 * A connection that speaks HTTP has one request at a time with the workers, so that replies keep
 * the order of their requests.
 */
#ifndef LM_DIALECTS_HTTP_H
#define LM_DIALECTS_HTTP_H

#include "flow/state.h"

extern const struct lm_dialect lm_http;

/* Entries of the table that gRPC's has too. */
void lm_http_body_received(struct lm_io *io, struct lm_connection *connection);
uint64_t lm_http_bytes_expected(const struct lm_connection *connection);
void lm_http_answer_for(struct lm_io *io, struct lm_connection *connection,
                        struct lm_request *request, enum lm_status status, const char *why);
uint32_t lm_http_key(const struct lm_io *io, const struct lm_connection *connection);
void lm_http_complete_row(const struct lm_request *request, struct lm_trace_record *row);

/* Control thread: what each I/O thread keeps for HTTP. */
int lm_http_open(struct lm_io *io);
void lm_http_close(struct lm_io *io);

#endif
