/* loadgen_native.c: the native protocol from the client's side; called by loadgen.c only. */
#include <string.h>

#include "load/loadgen.h"

static void prepare(struct lm_load_connection *connection, const lumen_load_config *config) {
    uint32_t bytes = (uint32_t)config->payload_bytes;
    memcpy(connection->request, "LMN1", 4);
    connection->request[4] = LM_KIND_INFER;
    connection->request[5] = config->encoding;
    memcpy(connection->request + 6, &config->model, 2);
    memcpy(connection->request + 16, &bytes, 4);
    memcpy(connection->request + 20, &config->timeout_us, 4);
    memcpy(connection->request + 24, &config->rows, 4);
    connection->request[28] = (uint8_t)((config->credential ? LM_FLAG_CREDENTIAL : 0) |
                                        (config->shapes ? LM_FLAG_SHAPES : 0));
}

static ssize_t take_head(struct lm_load_connection *connection, const uint8_t *bytes,
                         size_t count) {
    size_t missing = LM_NATIVE_REPLY_BYTES - connection->head_used;
    size_t taken = count < missing ? count : missing;
    memcpy(connection->head + connection->head_used, bytes, taken);
    connection->head_used += (uint32_t)taken;
    if (connection->head_used < LM_NATIVE_REPLY_BYTES) return (ssize_t)taken;
    if (memcmp(connection->head, "LMR1", 4) != 0) return -1;
    uint32_t payload_bytes;
    memcpy(&connection->status, connection->head + 4, 2);
    memcpy(&payload_bytes, connection->head + 16, 4);
    connection->body_left = payload_bytes;
    connection->head_done = true;
    return (ssize_t)taken;
}

const struct lm_load_dialect lm_load_native = {.request_head_bytes = LM_NATIVE_REQUEST_BYTES,
                                               .reply_head_bytes = LM_NATIVE_REPLY_BYTES,
                                               .prepare = prepare,
                                               .take_head = take_head};
