/* http2_place.c: see http2_place.h. */
#include "dialects/http2_place.h"

#include "dialects/grpc_receive.h"
#include "dialects/http2_receive.h"
#include "dialects/http2_shelf.h"
#include "dialects/http2_streams.h"
#include "flow/receive.h"

/* Fewer bytes come with those behind them. */
enum { PLACE_BYTES_LEAST = LM_HEADER_BUFFER_BYTES };

/* Bytes of a call's message that follow each other in its request. */
static size_t of_call(const struct lm_grpc_call *grpc) {
    switch ((enum lm_grpc_stage)grpc->stage) {
    case LM_GRPC_TENSORS: return grpc->blob_left;
    case LM_GRPC_WHOLE: return grpc->left;
    case LM_GRPC_PREFIX:
    case LM_GRPC_HEAD:
    case LM_GRPC_OVER: break;
    }
    return 0;
}

bool lm_http2_place(struct lm_io *io, struct lm_connection *carrier, struct iovec *place_out) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const bool is_data = http2 && http2->reader.in_frame &&
                         http2->reader.frame.type == LM_HTTP2_DATA && http2->reader.pad_known &&
                         http2->reader.pad == 0;
    if (!is_data || http2->reader.left < PLACE_BYTES_LEAST) return false;
    struct lm_http2_stream *stream = lm_http2_stream_find(http2, http2->reader.frame.stream);
    if (!stream || stream->shelf || stream->is_done) return false;
    struct lm_connection *connection = lm_http2_connection(io, stream);
    if (!connection || !lm_receive_place(io, connection, place_out)) return false;
    size_t most = http2->reader.left;
    if (stream->grpc.method && of_call(&stream->grpc) < most) most = of_call(&stream->grpc);
    if (place_out->iov_len > most) place_out->iov_len = most;
    if (place_out->iov_len < PLACE_BYTES_LEAST) return false;
    http2->placing = (uint16_t)(1 + (stream - http2->busy->streams));
    connection->recv_armed = true;
    return true;
}

void lm_http2_placed(struct lm_io *io, struct lm_connection *carrier, size_t bytes) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    if (!http2 || !http2->placing) return;
    struct lm_http2_stream *stream = &http2->busy->streams[http2->placing - 1];
    struct lm_connection *connection = lm_io_connection(io, stream->connection);
    http2->placing = 0;
    connection->recv_armed = false;
    lm_connection_mark(io, connection);
    if (bytes == 0) return;
    http2->reader.left -= (uint32_t)bytes;
    lm_http2_credit_connection(http2, bytes);
    stream->recv_window -= (int64_t)bytes;
    if (stream->body_left != UINT64_MAX) stream->body_left -= bytes;
    if (!connection->ended) {
        if (stream->grpc.method) lm_grpc_placed(stream, bytes);
        lm_receive_placed(io, connection, bytes);
    }
    if (http2->reader.left == 0) (void)lm_http2_take_frame(io, carrier, NULL, 0); /* its end */
}
