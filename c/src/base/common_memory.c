/* common_memory.c: see common_memory.h. */
#include "base/common_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "lumen.h"

enum { HUGE_PAGE_BYTES = 2 << 20 }; /* parts begin so, for pages of this size */

static int map_whole(struct lm_common_memory *memory, size_t bytes) {
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory->fd, 0);
    if (base == MAP_FAILED) {
        return lm_error_errno(LUMEN_E_NOMEM, errno,
                              "cannot reserve %zu bytes of addresses for memory in common", bytes);
    }
    memory->base = base;
    memory->bytes = bytes;
    /* As other memory of requests: the kernel may still write to it. */
    madvise(base, bytes, MADV_DONTFORK);
    return 0;
}

int lm_common_memory_open(struct lm_common_memory *memory, size_t bytes) {
    *memory = (struct lm_common_memory){.fd = -1};
    pthread_mutex_init(&memory->lock, NULL);
    memory->parts = calloc(LM_COMMON_PARTS_MAX, sizeof *memory->parts);
    int code = memory->parts ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for memory in common");
    if (!code) {
        memory->fd = memfd_create("lumen", MFD_CLOEXEC);
        if (memory->fd < 0 || ftruncate(memory->fd, (off_t)bytes) != 0)
            code =
                lm_error_errno(LUMEN_E_UNSUPPORTED, errno,
                               "cannot make a file of %zu bytes in memory (memfd_create)", bytes);
    }
    if (!code) code = map_whole(memory, bytes);
    if (code) lm_common_memory_close(memory);
    return code;
}

int lm_common_memory_join(struct lm_common_memory *memory, int take_fd, size_t bytes) {
    *memory = (struct lm_common_memory){.fd = take_fd};
    pthread_mutex_init(&memory->lock, NULL);
    int code = map_whole(memory, bytes);
    close(take_fd);
    memory->fd = -1;
    return code;
}

void lm_common_memory_close(struct lm_common_memory *memory) {
    if (memory->base) munmap(memory->base, memory->bytes);
    if (memory->fd >= 0) close(memory->fd);
    free(memory->parts);
    pthread_mutex_destroy(&memory->lock);
    *memory = (struct lm_common_memory){.fd = -1};
}

/* The first gap that is large enough; false: there is none. */
static bool find_gap(const struct lm_common_memory *memory, size_t bytes, uint32_t *place_out,
                     size_t *at_out) {
    size_t at = 0;
    uint32_t place = 0;
    while (place < memory->count && memory->parts[place].at - at < bytes) {
        at = memory->parts[place].at + memory->parts[place].bytes;
        place++;
    }
    *place_out = place;
    *at_out = at;
    return memory->count < LM_COMMON_PARTS_MAX && bytes <= memory->bytes - at;
}

int lm_common_memory_take(struct lm_common_memory *memory, struct lm_mapping *mapping, size_t bytes,
                          uint32_t huge_pages) {
    size_t rounded = lm_align_up(bytes ? bytes : 1, HUGE_PAGE_BYTES), at;
    uint32_t place;
    *mapping = (struct lm_mapping){0};
    pthread_mutex_lock(&memory->lock);
    bool found = rounded >= bytes && find_gap(memory, rounded, &place, &at);
    if (found) {
        memmove(&memory->parts[place + 1], &memory->parts[place],
                (memory->count - place) * sizeof *memory->parts);
        memory->parts[place] = (struct lm_common_part){at, rounded};
        memory->count++;
    }
    pthread_mutex_unlock(&memory->lock);
    if (!found) {
        return lm_error(
            LUMEN_E_NOMEM,
            "%zu bytes of memory in common are not left of %zu (lower server.arena_bytes, "
            "or the batch_size of isolated models)",
            bytes, memory->bytes);
    }
    mapping->base = memory->base + at;
    mapping->bytes = rounded;
    if (huge_pages == LUMEN_HUGE_NONE) {
        madvise(mapping->base, rounded, MADV_NOHUGEPAGE);
    } else {
        mapping->huge_pages = madvise(mapping->base, rounded, MADV_HUGEPAGE) == 0;
    }
    lm_memory_bind_preferred(mapping->base, rounded);
    return 0;
}

void lm_common_memory_give_back(struct lm_common_memory *memory, struct lm_mapping *mapping) {
    if (!mapping->base) return;
    size_t at = (size_t)((uint8_t *)mapping->base - memory->base);
    madvise(mapping->base, mapping->bytes, MADV_REMOVE); /* whoever takes it next finds zeros */
    pthread_mutex_lock(&memory->lock);
    uint32_t place = 0;
    while (place < memory->count && memory->parts[place].at != at) place++;
    LM_ASSERT(place < memory->count);
    memory->count--;
    memmove(&memory->parts[place], &memory->parts[place + 1],
            (memory->count - place) * sizeof *memory->parts);
    pthread_mutex_unlock(&memory->lock);
    *mapping = (struct lm_mapping){0};
}
