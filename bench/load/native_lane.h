/* native_lane.h: one connection of the native protocol with many requests out at a time, never
 * blocking. For overload_client.c, on its one thread; all requests have the same payload.
 *
 * A refusal may come before the last byte of its request has gone out: a request's place is free
 * when it is both answered and sent. The hooks say what happened; `place_free` may put the next
 * request at once.
 */
#ifndef LM_TOOLS_NATIVE_LANE_H
#define LM_TOOLS_NATIVE_LANE_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/native_codec.h"

enum { LANE_DEPTH_MAX = 64 /* of the server: more are not read */, LANE_SCRATCH_BYTES = 1 << 16 };

struct lane_request {
    uint64_t due_ns;
    void *tag; /* the caller's */
    bool answered, sent;
    uint8_t header[LM_NATIVE_REQUEST_BYTES];
};

struct lane {
    int fd;     /* -1: lost */
    bool ready; /* the caller's */
    uint32_t depth, free_count, head_used;
    uint32_t send_from, send_to; /* positions in `sending` */
    size_t send_offset;          /* bytes of the first of them that are out */
    uint64_t body_left;
    uint8_t free[LANE_DEPTH_MAX], sending[LANE_DEPTH_MAX];
    uint8_t head[LM_NATIVE_REPLY_BYTES];
    struct lane_request requests[LANE_DEPTH_MAX];
};

struct lane_hooks {
    void *context;
    const uint8_t *payload;
    uint32_t payload_bytes;
    void (*answered)(void *context, struct lane_request *request, uint16_t status);
    void (*place_free)(void *context, struct lane *lane, const struct lane_request *request);
    void (*lost)(void *context, const struct lane_request *request);
};

/* Connects. `header`: of each request but for id and timeout. false: errno says why not. */
static bool lane_open(struct lane *lane, const struct sockaddr_in *address, uint32_t depth,
                      const uint8_t header[LM_NATIVE_REQUEST_BYTES]) {
    const int on = 1;
    *lane = (struct lane){.depth = depth};
    for (uint32_t slot = 0; slot < depth; slot++) {
        memcpy(lane->requests[slot].header, header, LM_NATIVE_REQUEST_BYTES);
        lane->requests[slot].answered = true;
        lane->free[lane->free_count++] = (uint8_t)slot;
    }
    lane->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (lane->fd < 0) return false;
    setsockopt(lane->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connect(lane->fd, (const struct sockaddr *)address, sizeof *address) == 0;
}

static void lane_lose(struct lane *lane, const struct lane_hooks *hooks) {
    for (uint32_t slot = 0; slot < lane->depth; slot++) {
        struct lane_request *request = &lane->requests[slot];
        if (request->answered) continue;
        request->answered = true;
        hooks->lost(hooks->context, request);
    }
    close(lane->fd);
    lane->fd = -1;
}

/* Queues a request; lane_flush sends it. There must be a free place. */
static void lane_put(struct lane *lane, uint64_t due_ns, uint32_t timeout_us, void *tag) {
    uint64_t slot = lane->free[--lane->free_count];
    struct lane_request *request = &lane->requests[slot];
    request->due_ns = due_ns;
    request->tag = tag;
    request->answered = request->sent = false;
    memcpy(request->header + 8, &slot, 8);
    memcpy(request->header + 20, &timeout_us, 4);
    lane->sending[lane->send_to++ % LANE_DEPTH_MAX] = (uint8_t)slot;
}

static void lane_release(struct lane *lane, const struct lane_hooks *hooks, uint32_t slot) {
    lane->free[lane->free_count++] = (uint8_t)slot;
    hooks->place_free(hooks->context, lane, &lane->requests[slot]);
}

static void lane_mark_sent(struct lane *lane, const struct lane_hooks *hooks, size_t bytes) {
    size_t whole = LM_NATIVE_REQUEST_BYTES + hooks->payload_bytes;
    lane->send_offset += bytes;
    while (lane->send_from != lane->send_to && lane->send_offset >= whole) {
        uint32_t slot = lane->sending[lane->send_from++ % LANE_DEPTH_MAX];
        lane->send_offset -= whole;
        lane->requests[slot].sent = true;
        if (lane->requests[slot].answered) lane_release(lane, hooks, slot);
    }
}

/* What waits to be sent, as pieces. */
static size_t lane_pieces(struct lane *lane, const struct lane_hooks *hooks,
                          struct iovec pieces[2 * LANE_DEPTH_MAX]) {
    size_t count = 0, skip = lane->send_offset;
    for (uint32_t at = lane->send_from; at != lane->send_to; at++) {
        struct lane_request *request = &lane->requests[lane->sending[at % LANE_DEPTH_MAX]];
        struct iovec pair[2] = {{request->header, sizeof request->header},
                                {(void *)(uintptr_t)hooks->payload, hooks->payload_bytes}};
        for (int p = 0; p < 2; p++) {
            size_t taken = skip < pair[p].iov_len ? skip : pair[p].iov_len;
            skip -= taken;
            pieces[count++] =
                (struct iovec){(uint8_t *)pair[p].iov_base + taken, pair[p].iov_len - taken};
        }
    }
    return count;
}

/* Sends what waits, as far as the socket takes it. */
static void lane_flush(struct lane *lane, const struct lane_hooks *hooks) {
    struct iovec pieces[2 * LANE_DEPTH_MAX];
    while (lane->fd >= 0 && lane->send_from != lane->send_to) {
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = lane_pieces(lane, hooks, pieces)};
        ssize_t sent = sendmsg(lane->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) {
            lane_lose(lane, hooks);
        } else {
            lane_mark_sent(lane, hooks, (size_t)sent);
        }
    }
}

/* false: the reply is to no request of this lane. */
static bool lane_finish(struct lane *lane, const struct lane_hooks *hooks) {
    uint64_t id;
    uint16_t status;
    memcpy(&id, lane->head + 8, 8);
    memcpy(&status, lane->head + 4, 2);
    lane->head_used = 0;
    if (id >= lane->depth || lane->requests[id].answered) return false;
    struct lane_request *request = &lane->requests[id];
    request->answered = true;
    hooks->answered(hooks->context, request, status);
    if (request->sent) lane_release(lane, hooks, (uint32_t)id);
    return true;
}

/* Takes bytes of replies; false: they are none. */
static bool lane_take(struct lane *lane, const struct lane_hooks *hooks, const uint8_t *bytes,
                      size_t count) {
    while (count > 0) {
        size_t taken = sizeof lane->head - lane->head_used;
        if (taken > 0) { /* the head is not whole yet */
            taken = count < taken ? count : taken;
            memcpy(lane->head + lane->head_used, bytes, taken);
            lane->head_used += (uint32_t)taken;
            if (lane->head_used == sizeof lane->head) {
                uint32_t body;
                memcpy(&body, lane->head + 16, 4);
                if (memcmp(lane->head, "LMR1", 4) != 0) return false;
                lane->body_left = body;
            }
        } else {
            taken = count < lane->body_left ? count : (size_t)lane->body_left;
            lane->body_left -= taken;
        }
        bytes += taken;
        count -= taken;
        bool is_whole = lane->head_used == sizeof lane->head && lane->body_left == 0;
        if (is_whole && !lane_finish(lane, hooks)) return false;
    }
    return true;
}

/* Receives until nothing is left, as edge-triggered epoll wants it. */
static void lane_receive(struct lane *lane, const struct lane_hooks *hooks) {
    static uint8_t scratch[LANE_SCRATCH_BYTES];
    ssize_t count = sizeof scratch;
    while (lane->fd >= 0 && count == sizeof scratch) {
        count = recv(lane->fd, scratch, sizeof scratch, MSG_DONTWAIT);
        if (count < 0 && errno == EAGAIN) return;
        if (count <= 0 || !lane_take(lane, hooks, scratch, (size_t)count)) lane_lose(lane, hooks);
    }
}

#endif
