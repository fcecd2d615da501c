/* native_region.c: see native_region.h. */
#include "dialects/native_region.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "flow/region.h"
#include "flow/transport.h"

enum { DESCRIPTORS_MAX = 2 /* to see that there is more than one; the kernel closes others */ };

const char lm_native_region_early[] =
    "region: expected one byte with a descriptor, sent after the answer to the request (kind 4); "
    "found a byte that came with others, whose descriptor is closed";

const char *lm_native_region_refusal(const struct lm_io *io,
                                     const struct lm_connection *connection) {
    if (!io->shared->config.shared_memory)
        return "kind (byte 4): 4 region needs server.shared_memory: true, which is off here";
    if (!lm_transport_of(io, connection)->has_descriptors)
        return "kind (byte 4): 4 region needs the server's unix socket, found TCP";
    return NULL;
}

static uint32_t take_descriptors(struct msghdr *message, int fds[DESCRIPTORS_MAX]) {
    uint32_t count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        size_t bytes = part->cmsg_len - CMSG_LEN(0);
        for (; bytes >= sizeof(int) && count < DESCRIPTORS_MAX; bytes -= sizeof(int)) {
            memcpy(&fds[count], CMSG_DATA(part) + count * sizeof(int), sizeof(int));
            count++;
        }
    }
    return count;
}

/* -1: nothing came yet; 0: the client has gone. */
static ssize_t receive(const struct lm_connection *connection, int fds[DESCRIPTORS_MAX],
                       uint32_t *count_out, bool *cut_out) {
    uint8_t byte;
    union {
        struct cmsghdr alignment;
        uint8_t bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
    } control;
    struct iovec part = {&byte, sizeof byte};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t got = recvmsg(connection->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? -1 : 0;
    *count_out = take_descriptors(&message, fds);
    *cut_out = message.msg_flags & MSG_CTRUNC;
    return got;
}

bool lm_native_region_receive(struct lm_io *io, struct lm_connection *connection,
                              enum lm_status *status_out, char *why, size_t why_bytes) {
    int fds[DESCRIPTORS_MAX];
    uint32_t count = 0;
    bool cut = false;
    ssize_t got = receive(connection, fds, &count, &cut);
    if (got < 0) return false;
    if (got == 0) {
        lm_connection_end(io, connection);
        return false;
    }
    lm_add_single_writer_u64(&io->stats->io.bytes_in, (uint64_t)got);
    *status_out = LM_STATUS_BAD_REQUEST;
    if (count == 1 && !cut) {
        *status_out = lm_region_take(io, connection, fds[0], why, why_bytes);
    } else {
        /* Cut: more than two, or the process has no descriptor left. */
        snprintf(why, why_bytes, "region: expected one descriptor with its byte, found %s",
                 count == 0 ? (cut ? "one that this process has no room for" : "none") : "more");
    }
    for (uint32_t d = 0; d < count; d++) close(fds[d]);
    return true;
}
