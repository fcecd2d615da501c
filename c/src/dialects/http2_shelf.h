/* http2_shelf.h: what a stream's client may send, and where it goes when nobody takes it yet.
 *
 * A stream whose request waits (for a slot, for the answer before its own) takes nothing. Its bytes
 * lie on a shelf of the I/O thread's meanwhile, and the connection is read on: other streams have
 * nothing to do with it. A window is credit for memory: a stream's holds a shelf, and as much more
 * as its request has a place for. Who keeps to it never has a shelf run over.
 *
 * Shelves hold so much in all (LM_HTTP2_SHELVED_MAX), and of one connection no more than may still
 * come, so that there is room for one that has none. A stream for whose bytes there is no room is
 * refused: a carrier that were not read until it goes on would hear no windows either, for which
 * those may wait that have its slot.
 * I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP2_SHELF_H
#define LM_DIALECTS_HTTP2_SHELF_H

#include "dialects/http2_state.h"

int lm_http2_shelves_open(struct lm_http2_shelves *shelves);
void lm_http2_shelves_close(struct lm_http2_shelves *shelves);

/* Puts bytes behind those on the stream's shelf. false: there is no room for them. */
bool lm_http2_shelve(struct lm_http2_carrier *http2, struct lm_http2_stream *stream,
                     const uint8_t *bytes, size_t count);
/* The bytes on the stream's shelf, from the first that nobody has taken. */
const uint8_t *lm_http2_shelved(const struct lm_http2_carrier *http2,
                                const struct lm_http2_stream *stream);
/* So many of them are taken; without a byte the shelf goes back. */
void lm_http2_unshelve(struct lm_http2_carrier *http2, struct lm_http2_stream *stream,
                       size_t count);

/* Bytes of DATA are here, wherever they go: as many more may come over the connection, once they
 * are worth a frame. */
void lm_http2_credit_connection(struct lm_http2_carrier *http2, size_t bytes);
/* Widens the stream's window where that is worth a frame. Of its body `left` bytes are not here, at
 * most, and `placed` of them have a place; `aside` bytes have come that may still go to the shelf.
 */
void lm_http2_credit_stream(struct lm_http2_carrier *http2, struct lm_http2_stream *stream,
                            uint64_t left, uint64_t placed, uint32_t aside);

#endif
