/* ring_base.c: what both backends have: an eventfd and the header buffers; see ring_backend.h. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/error.h"
#include "base/limits.h"
#include "ring/ring_backend.h"

int lm_ring_base_open(struct lm_ring *base, uint32_t backend) {
    base->backend = backend;
    base->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (base->wake_fd < 0) return lm_error_errno(LUMEN_E_IO, errno, "cannot create an eventfd");
    /* Parsers may look a cache line ahead. */
    return lm_mapping_open(&base->buffer_memory,
                           (size_t)LM_HEADER_BUFFERS * LM_HEADER_BUFFER_BYTES + LM_CACHE_LINE);
}

void lm_ring_base_close(struct lm_ring *base) {
    if (base->wake_fd >= 0) close(base->wake_fd);
    lm_mapping_close(&base->buffer_memory);
}

uint8_t *lm_ring_buffer(struct lm_ring *ring, int32_t buffer) {
    return (uint8_t *)ring->buffer_memory.base + (size_t)buffer * LM_HEADER_BUFFER_BYTES;
}
