/* http_receive.h: HTTP's side of reading: heads, the JSON before the blobs, chunked bodies. I/O
 * thread only.
 *
 * A head that is whole in one buffer is parsed there. A head in pieces is put together in a block
 * (http_block.h); when the blocks run out, the connection that has held one the longest is told
 * that it is too slow. So a client that sends its head in one piece never waits for those that
 * dribble.
 */
#ifndef LM_DIALECTS_HTTP_RECEIVE_H
#define LM_DIALECTS_HTTP_RECEIVE_H

#include "flow/state.h"

size_t lm_http_take(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                    size_t count);
uint64_t lm_http_prologue_deadline_ns(const struct lm_io *io,
                                      const struct lm_connection *connection);

#endif
