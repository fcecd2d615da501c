/* live.h: a server of small models in this process, and clients that ask it: for tests of what
 * changes while it serves. */
#ifndef TESTS_C_LIVE_H
#define TESTS_C_LIVE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/native_codec.h"
#include "check.h"
#include "onnx/ort.h"
#include "onnx_graph.h"
#include "server/state.h"

enum { SIZE = 4, WIDE = 15000, GONE = -1 };

static const char *library;
static char paths[5][300]; /* x, -x, 2x, and two of larger tensors */

static inline void make_graphs(void) {
    static const char *const operations[] = {"Identity", "Neg", "Add", "Identity", "Neg"};
    static const char *const inputs[] = {"x", "x", "x,x", "x", "x"};
    for (int g = 0; g < 5; g++) {
        const char *dims = g == 4 ? "n,15000" : g == 3 ? "n,20000" : "n,4";
        snprintf(paths[g], sizeof paths[g], "%s/%d.onnx", check_temporary_directory(), g);
        graph_begin();
        graph_input("x", ORT_FLOAT, dims);
        graph_node(operations[g], inputs[g], "y");
        graph_output("y", ORT_FLOAT, dims);
        graph_save(paths[g]);
    }
}

static inline lumen_model_config model_of(const char *name, int graph) {
    return (lumen_model_config){.name = name,
                                .path = paths[graph],
                                .intra_op_threads = 1,
                                .scale = {1, 1, 1},
                                .max_rows = 8,
                                .max_output_bytes = 4096,
                                .batch_delay_us = UINT32_MAX};
}

/* Of two I/O threads and two workers. */
static inline lumen_config config_of(uint32_t queue_type, uint32_t allocator_type,
                                     uint32_t batch_size) {
    return (lumen_config){.abi_version = LUMEN_ABI_VERSION,
                          .host = "127.0.0.1",
                          .ort_library_path = library,
                          .io_threads = 2,
                          .thread_count = 2,
                          .max_connections = 16,
                          .max_request_bytes = 65536,
                          .arena_bytes = 16 << 20,
                          .queue_type = queue_type,
                          .allocator_type = allocator_type,
                          .batch_size = batch_size,
                          .queue_capacity = 64};
}

/* With the first graph as its model "first". */
/* `run`: LUMEN_RUN_*. */
static inline lumen_server *start_run_by(const lumen_config *config, uint32_t run) {
    lumen_model_config first = model_of("first", 0);
    lumen_server *server = NULL;
    uint32_t index;
    first.run = run;
    CHECK_AT("queue %u, allocator %u: %s", config->queue_type, config->allocator_type,
             lm_error_last());
    CHECK(lumen_open(config, &server) == 0 && lumen_add_model(server, &first, &index) == 0);
    CHECK(lumen_start(server) == 0);
    return server;
}

/* With LUMEN_QUEUE_AUTO its I/O threads run the model too: a start during which the machine was
 * so busy that the Runs seemed long is done again. */
static inline lumen_server *start_with(const lumen_config *config) {
    for (int times = 0; times < 50; times++) {
        lumen_server *server = start_run_by(config, LUMEN_RUN_AUTO);
        const struct lm_model *model = server->set->models[0];
        if (model->run != LUMEN_RUN_WORKER || model->run_ns == 0) return server;
        lumen_close(server);
    }
    CHECK_AT("%s", "the Runs were long at each of 50 starts");
    CHECK(false);
    return NULL;
}

/* ---- a client ---- */

static inline int dial(lumen_server *server) {
    lumen_info info;
    CHECK(lumen_get_info(server, &info) == 0);
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)info.port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    CHECK(connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* The bytes of a request from `from` to `to`, of which it has REQUEST_BYTES. */
enum { REQUEST_BYTES = LM_NATIVE_REQUEST_BYTES + SIZE * 4 };

static inline void send_part(int fd, uint16_t model, size_t from, size_t to) {
    uint8_t request[LM_NATIVE_REQUEST_BYTES + SIZE * 4] = "LMN1\1";
    const uint32_t payload = SIZE * 4;
    const float values[SIZE] = {3, 3, 3, 3};
    memcpy(request + 6, &model, 2);
    memcpy(request + 16, &payload, 4);
    memcpy(request + LM_NATIVE_REQUEST_BYTES, values, sizeof values);
    CHECK(send(fd, request + from, to - from, MSG_NOSIGNAL) == (ssize_t)(to - from));
}

static inline void send_to(int fd, uint16_t model) {
    send_part(fd, model, 0, REQUEST_BYTES);
}

/* Returns the model's answer to 3, or GONE where the status is LM_STATUS_UNKNOWN_MODEL. */
static inline int receive_from(int fd) {
    uint8_t reply[LM_NATIVE_REPLY_BYTES];
    float values[SIZE];
    char why[LM_TEXT_BYTES_MAX];
    uint16_t status;
    uint32_t bytes;
    CHECK(recv(fd, reply, sizeof reply, MSG_WAITALL) == (ssize_t)sizeof reply);
    memcpy(&status, reply + 4, 2);
    memcpy(&bytes, reply + 16, 4);
    if (status == LM_STATUS_OK) {
        CHECK(bytes == sizeof values);
        CHECK(recv(fd, values, sizeof values, MSG_WAITALL) == (ssize_t)sizeof values);
        for (int v = 1; v < SIZE; v++) CHECK(values[v] == values[0]);
        return (int)values[0];
    }
    CHECK(bytes < sizeof why && recv(fd, why, bytes, MSG_WAITALL) == (ssize_t)bytes);
    why[bytes] = '\0';
    CHECK_AT("status %u: %.99s", status, why);
    CHECK(status == LM_STATUS_UNKNOWN_MODEL);
    return GONE;
}

static inline int ask(int fd, uint16_t model) {
    send_to(fd, model);
    return receive_from(fd);
}

static inline void says(int code, int expected, const char *why) {
    CHECK_AT("expected '%s' in: %s", why, lm_error_last());
    CHECK(code == expected && strstr(lm_error_last(), why));
}

#endif
