/* grpc.h: calls of gRPC, in streams of HTTP/2. A call becomes the request of HTTP that asks the
 * same (formats/grpc_route.h), with its tensors as they are; what answers that becomes a message
 * (grpc_reply.h). So every route, right, gate and timer is that of HTTP. I/O threads, and workers
 * where the table says so.
 */
#ifndef LM_DIALECTS_GRPC_H
#define LM_DIALECTS_GRPC_H

#include "flow/dialect.h"

extern const struct lm_dialect lm_grpc;

#endif
