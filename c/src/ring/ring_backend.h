/* ring_backend.h: what the two backends of ring.h share, and their functions. For ring*.c alone.
 * The thread of the ring. */
#ifndef LM_RING_RING_BACKEND_H
#define LM_RING_RING_BACKEND_H

#include "base/memory.h"
#include "ring/ring.h"
#include "ring/uring_features.h"

/* The first member of each backend's own struct. */
struct lm_ring {
    uint32_t backend; /* LUMEN_IO_URING or LUMEN_IO_EPOLL */
    int wake_fd;
    struct lm_mapping buffer_memory;
    char detail[128];
    char note[400];
};

/* The eventfd and the header buffers; to be closed whatever it returns. */
int lm_ring_base_open(struct lm_ring *base, uint32_t backend);
void lm_ring_base_close(struct lm_ring *base);

/* Accepts, receives and sends over a connection of its own. Returns 0 with nothing left armed;
 * LUMEN_E_UNSUPPORTED with what was found when the ring does not do what it should;
 * LUMEN_E_AGAIN when this machine has no loop-back connection to try it on. */
int lm_ring_check(struct lm_ring *ring);

int lm_uring_open(struct lm_ring **ring_out, const struct lm_uring_features *features,
                  uint32_t max_connections);
void lm_uring_close(struct lm_ring *base);
void lm_uring_accept(struct lm_ring *base, uint32_t listener, int listen_fd);
void lm_uring_cancel_accept(struct lm_ring *base, uint32_t listener);
void lm_uring_recv_header(struct lm_ring *base, int fd, uint32_t index, uint32_t generation);
void lm_uring_recv(struct lm_ring *base, int fd, void *memory, size_t bytes, uint32_t index,
                   uint32_t generation);
void lm_uring_poll(struct lm_ring *base, int fd, uint32_t index, uint32_t generation);
void lm_uring_send(struct lm_ring *base, int fd, const struct msghdr *message, uint32_t index,
                   uint32_t generation);
void lm_uring_connect(struct lm_ring *base, int fd, const struct sockaddr *address, socklen_t bytes,
                      uint32_t index, uint32_t generation);
bool lm_uring_is_submitted(const struct lm_ring *base);
void lm_uring_cancel_recv_header(struct lm_ring *base, uint32_t index, uint32_t generation);
void lm_uring_cancel_recv(struct lm_ring *base, uint32_t index, uint32_t generation);
void lm_uring_buffer_return(struct lm_ring *base, int32_t buffer);
int lm_uring_wait(struct lm_ring *base, uint64_t poll_ns, uint64_t timeout_ns,
                  struct lm_completion *completions, uint32_t capacity);
uint64_t lm_uring_overflows(const struct lm_ring *base);
/* The features as they turned out, once something was accepted. */
void lm_uring_describe(struct lm_ring *base);

int lm_epoll_open(struct lm_ring **ring_out, const struct lm_uring_features *features,
                  uint32_t max_connections);
void lm_epoll_close(struct lm_ring *base);
void lm_epoll_accept(struct lm_ring *base, uint32_t listener, int listen_fd);
void lm_epoll_cancel_accept(struct lm_ring *base, uint32_t listener);
void lm_epoll_cancel_recv(struct lm_ring *base, uint32_t index, uint32_t generation);
void lm_epoll_recv_header(struct lm_ring *base, int fd, uint32_t index, uint32_t generation);
void lm_epoll_recv(struct lm_ring *base, int fd, void *memory, size_t bytes, uint32_t index,
                   uint32_t generation);
void lm_epoll_poll(struct lm_ring *base, int fd, uint32_t index, uint32_t generation);
void lm_epoll_send(struct lm_ring *base, int fd, const struct msghdr *message, uint32_t index,
                   uint32_t generation);
void lm_epoll_connect(struct lm_ring *base, int fd, const struct sockaddr *address, socklen_t bytes,
                      uint32_t index, uint32_t generation);
void lm_epoll_buffer_return(struct lm_ring *base, int32_t buffer);
int lm_epoll_wait(struct lm_ring *base, uint64_t poll_ns, uint64_t timeout_ns,
                  struct lm_completion *completions, uint32_t capacity);

#endif
