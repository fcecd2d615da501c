/* http_shm.h: Triton's system shared memory extension: registering regions, where
 * server.shared_memory is true, for clients of this machine. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP_SHM_H
#define LM_DIALECTS_HTTP_SHM_H

#include "flow/state.h"
#include "formats/http_route.h"

/* The longest status there can be. */
enum { LM_HTTP_SHM_BYTES_MAX = LM_SHM_REGIONS_MAX * (2 * LM_SHM_NAME_BYTES_MAX + 128) };

/* Answers a request of the extension, or begins to read its body. false: it is none. */
bool lm_http_shm_take(struct lm_io *io, struct lm_connection *connection,
                      const struct lm_http_match *match);
/* Whether a registration is being read: its block holds the region's name. */
bool lm_http_shm_collects(const struct lm_connection *connection);
/* Its JSON is whole. */
void lm_http_shm_register(struct lm_io *io, struct lm_connection *connection, const char *text);

#endif
