/* grpc_reply.h: what answers a call: a message and a status behind it, or a status alone. I/O
 * thread only.
 */
#ifndef LM_DIALECTS_GRPC_REPLY_H
#define LM_DIALECTS_GRPC_REPLY_H

#include "dialects/http2_state.h"

/* gRPC's status codes. */
enum lm_grpc_status {
    LM_GRPC_OK,
    LM_GRPC_CANCELLED,
    LM_GRPC_UNKNOWN,
    LM_GRPC_INVALID_ARGUMENT,
    LM_GRPC_DEADLINE_EXCEEDED,
    LM_GRPC_NOT_FOUND,
    LM_GRPC_ALREADY_EXISTS,
    LM_GRPC_PERMISSION_DENIED,
    LM_GRPC_RESOURCE_EXHAUSTED,
    LM_GRPC_FAILED_PRECONDITION,
    LM_GRPC_ABORTED,
    LM_GRPC_OUT_OF_RANGE,
    LM_GRPC_UNIMPLEMENTED,
    LM_GRPC_INTERNAL,
    LM_GRPC_UNAVAILABLE,
    LM_GRPC_DATA_LOSS,
    LM_GRPC_UNAUTHENTICATED
};

/* grpc.health.v1's. */
enum { LM_GRPC_SERVING = 1, LM_GRPC_NOT_SERVING, LM_GRPC_SERVICE_UNKNOWN };

enum {
    LM_GRPC_BLOCK_BYTES_MAX = 1280, /* of fields with a status and its sentence */
    LM_GRPC_TRAILERS_BYTES = 96     /* of fields that say that all went well */
};

/* Ends a call with this status; what its client still sends is dropped. */
void lm_grpc_finish(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                    enum lm_grpc_status status, const char *why);

/* Makes a message of a request's reply, in its place; or a status, of which nothing of the reply is
 * sent: stream->grpc.is_message says which. Writes the fields that stand before it to `block`,
 * where none are sent yet. Returns their bytes. */
size_t lm_grpc_compose(struct lm_io *io, struct lm_http2_stream *stream, struct lm_request *request,
                       uint8_t *block, size_t room);
/* The fields behind the last message of a call that went well. */
size_t lm_grpc_trailers(struct lm_io *io, uint8_t block[LM_GRPC_TRAILERS_BYTES]);

#endif
