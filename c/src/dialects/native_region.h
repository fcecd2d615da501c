/* native_region.h: a client hands a region over (docs/PROTOCOL.md, flow/region.h): it asks, and
 * after the answer sends one byte with the descriptor. It has to wait: the kernel gives a
 * descriptor to the receive that takes its byte, and headers are received without. I/O thread only.
 */
#ifndef LM_DIALECTS_NATIVE_REGION_H
#define LM_DIALECTS_NATIVE_REGION_H

#include "flow/state.h"

/* Why the connection may hand none over; NULL: it may. */
const char *lm_native_region_refusal(const struct lm_io *io,
                                     const struct lm_connection *connection);
/* Why a byte that came with others is refused. */
extern const char lm_native_region_early[];
/* Receives the byte and takes what came with it. false: nothing came yet, or the client has gone;
 * otherwise `status_out`, with a sentence unless it is OK. */
bool lm_native_region_receive(struct lm_io *io, struct lm_connection *connection,
                              enum lm_status *status_out, char *why, size_t why_bytes);

#endif
