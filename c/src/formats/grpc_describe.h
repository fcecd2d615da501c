/* grpc_describe.h: gRPC's reflection: which services there are, and the descriptors of their
 * messages, made of the tables of grpc_schema.h as they are asked for. No state, no memory of its
 * own: any thread.
 */
#ifndef LM_FORMATS_GRPC_DESCRIBE_H
#define LM_FORMATS_GRPC_DESCRIBE_H

#include "formats/grpc_schema.h"
#include "wire/protobuf.h"

/* The reply to a ServerReflectionRequest. false: it is none, or there is no room. */
bool lm_grpc_describe(const uint8_t *request, size_t bytes, struct lm_pb_writer *writer);

#endif
