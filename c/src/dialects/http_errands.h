/* http_errands.h: requests over HTTP that the control program answers: which models there are, load
 * one, unload one. The I/O thread reads a body of at most LM_ERRAND_TEXT_BYTES_MAX, hands it over,
 * and sends the answer when that is there; its connection counts as one with a request in flight
 * meanwhile. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP_ERRANDS_H
#define LM_DIALECTS_HTTP_ERRANDS_H

#include "dialects/http_block.h"
#include "flow/state.h"
#include "formats/http_route.h"

/* Answers or refuses a request for the control program, or begins to read its body. false: it is
 * none, or the server has nobody who would answer it. */
bool lm_http_errand_take(struct lm_io *io, struct lm_connection *connection,
                         const struct lm_http_match *match);
/* Whether the body of one is being read: its block holds the model's name. */
bool lm_http_errand_collects(const struct lm_connection *connection);
/* How long the body of a call may be; 0: the route is none, or the server has nobody to answer it.
 */
uint64_t lm_http_errand_bytes_max(const struct lm_io *io, uint8_t route);
/* Bytes of a body that brings files, into the memory that its block names. Returns how many. */
size_t lm_http_upload_take(struct lm_io *io, struct lm_connection *connection,
                           struct lm_http_block *block, const uint8_t *bytes, size_t count);
/* Its body is whole. */
void lm_http_errand_received(struct lm_io *io, struct lm_connection *connection, const char *text);
/* Once a turn: sends the answers that are there. */
void lm_http_errands_answer(struct lm_io *io);

#endif
