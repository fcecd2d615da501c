/* floor.c: the least a server can do for a model: receive a request of the native protocol, Run,
 * send the answer. `make floor` holds Lumen against it.
 *
 *   floor LIBRARY MODEL
 *
 * LIBRARY libonnxruntime.so, MODEL a graph with one input and one output, whose free dimensions are
 * 1. One thread per core, each with a listener of its own on one port, an epoll set, a session and
 * Lumen's arena for ONNX Runtime's memory. Everything is allocated, and every tensor wrapped,
 * before the line "port N" is printed. No admission, no deadline, no statistics, no other kind of
 * request: it believes every header, and a client that sends a second request before its answer
 * loses its connection. Ends with SIGTERM.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/native_codec.h"
#include "base/topology.h"
#include "models/load.h"
#include "models/model.h"
#include "onnx/run_arena.h"

enum { THREADS_MAX = 64, CONNECTIONS = 256 /* of one thread */, EVENTS = 64 };
static const struct lm_sizes one_row = {.rows = 1, .free = {1, 1, 1, 1, 1, 1}};

struct connection {
    int fd;
    size_t received;
    uint8_t *request, *reply; /* a header, then the tensor at the next cache line */
    OrtValue *input, *output;
};

struct thread {
    uint32_t index;
    int32_t cpu;
    int listener, epoll;
    OrtSession *session;
    struct connection connections[CONNECTIONS];
    struct connection *free[CONNECTIONS];
    uint32_t free_count;
};

static struct lm_ort ort;
static struct lm_model model;
static struct lm_run_arenas arenas;
static size_t request_bytes, reply_bytes;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, errno ? strerror(errno) : lm_error_last());
    exit(1);
}

static OrtValue *wrap(const struct lm_tensor *tensor, void *data, size_t bytes) {
    int64_t shape[LM_RANK_MAX];
    lm_tensor_shape(tensor, &one_row, shape);
    OrtValue *value = lm_ort_wrap(&ort, data, bytes, shape, tensor->rank, tensor->dtype);
    if (!value) fail("wrapping a tensor");
    return value;
}

static void prepare(struct connection *connection, size_t input_bytes, size_t output_bytes) {
    size_t output_at = lm_align_up(LM_SLOT_ALIGN + input_bytes + 1, LM_SLOT_ALIGN) + LM_SLOT_ALIGN;
    size_t whole = lm_align_up(output_at + output_bytes, LM_SLOT_ALIGN);
    uint8_t *memory = aligned_alloc(LM_SLOT_ALIGN, whole);
    if (!memory) fail("no memory");
    memset(memory, 0, whole);
    connection->request = memory + LM_SLOT_ALIGN - LM_NATIVE_REQUEST_BYTES;
    connection->reply = memory + output_at - LM_NATIVE_REPLY_BYTES;
    connection->input = wrap(&model.inputs[0], memory + LM_SLOT_ALIGN, input_bytes);
    connection->output = wrap(&model.outputs[0], memory + output_at, output_bytes);
    struct lm_native_reply reply = {.payload_bytes = (uint32_t)output_bytes, .rows = 1};
    lm_native_write_reply(connection->reply, &reply);
}

static void run(struct thread *thread, struct connection *connection) {
    const OrtValue *input = connection->input;
    OrtValue *output = connection->output;
    lm_run_arena_enter(&arenas, thread->index);
    if (ort.api->Run(thread->session, NULL, model.input_names, &input, 1, model.output_names, 1,
                     &output))
        fail("Run");
    lm_run_arena_leave();
}

static void welcome(struct thread *thread) {
    int on = 1, fd = accept4(thread->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (thread->free_count == 0) fail("too many connections");
    struct connection *connection = thread->free[--thread->free_count];
    connection->fd = fd;
    connection->received = 0;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = connection};
    if (epoll_ctl(thread->epoll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

/* One byte more than a request is asked for: fewer came, so that the socket is empty and the next
 * byte makes an event. */
static void serve(struct thread *thread, struct connection *connection) {
    ssize_t got = recv(connection->fd, connection->request + connection->received,
                       request_bytes + 1 - connection->received, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) connection->received += (size_t)got;
    if (got > 0 && connection->received < request_bytes) return;
    if (got > 0 && connection->received == request_bytes) {
        connection->received = 0;
        run(thread, connection);
        memcpy(connection->reply + 8, connection->request + 8, 8); /* the request's id */
        if (send(connection->fd, connection->reply, reply_bytes, MSG_NOSIGNAL) ==
            (ssize_t)reply_bytes)
            return;
    }
    close(connection->fd);
    thread->free[thread->free_count++] = connection;
}

static void *thread_main(void *argument) {
    struct thread *thread = argument;
    struct epoll_event events[EVENTS];
    lm_thread_pin(thread->cpu);
    for (uint64_t until = 0;;) {
        int count = epoll_wait(thread->epoll, events, EVENTS, lm_now_ns() < until ? 0 : -1);
        if (count > 0) until = lm_now_ns() + LM_IO_POLL_NS;
        for (int e = 0; e < count; e++) {
            if (events[e].data.ptr) {
                serve(thread, events[e].data.ptr);
            } else {
                welcome(thread);
            }
        }
    }
    return NULL;
}

/* Returns the port: the one it was given, or one that was free. */
static uint16_t listen_on(struct thread *thread, uint16_t port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    thread->listener = fd;
    thread->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (bind(fd, (struct sockaddr *)&address, bytes) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) ||
        epoll_ctl(thread->epoll, EPOLL_CTL_ADD, fd, &event))
        fail("listening");
    return ntohs(address.sin_port);
}

int main(int argc, char **argv) {
    static struct thread threads[THREADS_MAX];
    int32_t cpus[THREADS_MAX];
    size_t input_bytes = 0, output_bytes = 0;
    uint16_t port = 0;
    pthread_t id;
    if (argc != 3) fail("see the head of bench/perf/floor.c");
    lumen_model_config config = {
        .name = "floor", .path = argv[2], .intra_op_threads = 1, .max_output_bytes = 1 << 20};
    int count = lm_topology_usable_cpus("", cpus, THREADS_MAX);
    errno = 0;
    if (count < 1 || lm_ort_open(&ort, argv[1]) ||
        lm_run_arenas_open(&arenas, &ort, (uint32_t)count) ||
        lm_model_open(&model, &ort, &config, 0, (uint32_t)count))
        fail("loading");
    if (model.input_count != 1 || model.output_count != 1 || !model.outputs_known)
        fail("expected one input, and one output of a known shape");
    lm_tensor_bytes(&model.inputs[0], &one_row, &input_bytes);
    lm_tensor_bytes(&model.outputs[0], &one_row, &output_bytes);
    request_bytes = LM_NATIVE_REQUEST_BYTES + input_bytes;
    reply_bytes = LM_NATIVE_REPLY_BYTES + output_bytes;
    for (int t = 0; t < count; t++) {
        struct thread *thread = &threads[t];
        thread->index = (uint32_t)t;
        thread->cpu = cpus[t];
        thread->session = model.sessions[t];
        port = listen_on(thread, port);
        for (uint32_t c = 0; c < CONNECTIONS; c++) {
            prepare(&thread->connections[c], input_bytes, output_bytes);
            thread->free[thread->free_count++] = &thread->connections[c];
        }
        run(thread, &thread->connections[0]);
    }
    for (int t = 0; t < count; t++) {
        if (pthread_create(&id, NULL, thread_main, &threads[t])) fail("starting a thread");
    }
    printf("port %u\n", port);
    fflush(stdout);
    pthread_join(id, NULL);
    return 0;
}
