/* http_errands.h: requests over HTTP that the control program answers: which models there are, load
 * one, unload one. The I/O thread reads a body of at most LM_ERRAND_TEXT_BYTES_MAX, hands it over,
 * and sends the answer when that is there; its connection counts as one with a request in flight
 * meanwhile. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP_ERRANDS_H
#define LM_DIALECTS_HTTP_ERRANDS_H

#include "flow/state.h"
#include "parts/http_route.h"

/* Answers or refuses a request for the control program, or begins to read its body. false: it is
 * none, or the server has nobody who would answer it. */
bool lm_http_errand_take(struct lm_io *io, struct lm_connection *connection,
                         const struct lm_http_match *match);
/* Whether the body of one is being read: its block holds the model's name. */
bool lm_http_errand_collects(const struct lm_connection *connection);
/* Its body is whole. */
void lm_http_errand_received(struct lm_io *io, struct lm_connection *connection, const char *text);
/* Once a turn: sends the answers that are there. */
void lm_http_errands_answer(struct lm_io *io);

#endif
