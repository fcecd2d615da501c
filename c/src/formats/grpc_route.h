/* grpc_route.h: the request of HTTP that stands for a call of gRPC: which path, and which JSON. No
 * state, no memory of its own: any thread.
 */
#ifndef LM_FORMATS_GRPC_ROUTE_H
#define LM_FORMATS_GRPC_ROUTE_H

#include "formats/grpc_json.h"

/* Writes the first line, of which `message` has the model's name and version, and to `body` what
 * the request brings. Returns NULL, or a sentence why there is no such request. */
const char *lm_grpc_route(enum lm_grpc_method_index method, const uint8_t *message, size_t bytes,
                          struct lm_grpc_text *line, struct lm_grpc_text *body);

#endif
