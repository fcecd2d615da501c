/* region.c: see region.h. */
#include "flow/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/error.h"

#ifndef TMPFS_MAGIC
#define TMPFS_MAGIC 0x01021994 /* linux/magic.h */
#endif

static void publish(struct lm_io *io) {
    /* relaxed: gauges */
    lm_store_relaxed_u64(&io->stats->io.regions, io->regions_mapped);
    lm_store_relaxed_u64(&io->stats->io.region_bytes, io->region_bytes);
}

static void forget(struct lm_io *io, struct lm_region *region) {
    io->region_bytes -= region->counted;
    io->regions_mapped--;
    (void)lm_sub_relaxed_u64(&io->shared->region_bytes, region->counted); /* relaxed: a count */
    *region = (struct lm_region){0};
    publish(io);
}

/* A region that nobody uses is unmapped in parts: its pages may be many. */
static void let_go(struct lm_io *io, struct lm_region *region) {
    LM_DEBUG_ASSERT(region->uses > 0);
    region->uses--;
    io->regions_unused += region->uses == 0;
}

void lm_region_unmap(struct lm_io *io) {
    for (uint32_t r = 0; r < LM_REGIONS_MAX; r++) {
        struct lm_region *region = &io->regions[r];
        if (!region->base || region->uses > 0) continue;
        size_t part = region->bytes % LM_UNMAP_BYTES;
        if (part == 0) part = LM_UNMAP_BYTES;
        region->bytes -= part;
        munmap(region->base + region->bytes, part);
        if (region->bytes > 0) return;
        io->regions_unused--;
        forget(io, region);
        return;
    }
}

void lm_region_close_all(struct lm_io *io) {
    for (uint32_t r = 0; r < LM_REGIONS_MAX; r++) {
        if (io->regions[r].base) munmap(io->regions[r].base, io->regions[r].bytes);
        io->regions[r] = (struct lm_region){0};
    }
    io->regions_unused = 0;
}

static enum lm_status refuse(enum lm_status status, const char *sentence, char *why,
                             size_t why_bytes) {
    snprintf(why, why_bytes, "%s", sentence);
    return status;
}

/* Only memory that cannot shrink is touched: a page that is gone would be a SIGBUS. Huge pages of a
 * memfd may be gone too, when the system has none left. */
static enum lm_status check_kind(int fd, struct stat *status, char *why, size_t why_bytes) {
    struct statfs system;
    if (fstat(fd, status) != 0 || !S_ISREG(status->st_mode) || fstatfs(fd, &system) != 0 ||
        (uint64_t)system.f_type != TMPFS_MAGIC)
        return refuse(LM_STATUS_BAD_REQUEST,
                      "region: expected a memfd (memfd_create, without MFD_HUGETLB), found another "
                      "kind of descriptor",
                      why, why_bytes);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return refuse(LM_STATUS_BAD_REQUEST,
                      "region: expected a memfd sealed against shrinking (F_ADD_SEALS, "
                      "F_SEAL_SHRINK), found none",
                      why, why_bytes);
    if (status->st_size <= 0)
        return refuse(LM_STATUS_BAD_REQUEST, "region: expected bytes (ftruncate), found none", why,
                      why_bytes);
    return LM_STATUS_OK;
}

/* Adds to the bytes of all I/O threads, where that is within the limit. */
static bool count_bytes(struct lm_shared *shared, uint64_t bytes) {
    uint64_t most = shared->config.shared_memory_bytes;
    uint64_t now = lm_load_relaxed_u64(&shared->region_bytes); /* relaxed: a count alone */
    do {
        if (bytes > most || now > most - bytes) return false;
    } while (!lm_cas_weak_relaxed_u64(&shared->region_bytes, &now, now + bytes));
    return true;
}

static struct lm_region *find_free(struct lm_io *io) {
    for (uint32_t r = 0; r < LM_REGIONS_MAX; r++) {
        if (!io->regions[r].base) return &io->regions[r];
    }
    return NULL;
}

enum lm_status lm_region_take(struct lm_io *io, struct lm_connection *connection, int fd, char *why,
                              size_t why_bytes) {
    struct stat status;
    enum lm_status code = check_kind(fd, &status, why, why_bytes);
    if (code != LM_STATUS_OK) return code;
    uint64_t bytes = (uint64_t)status.st_size;
    struct lm_region *region = find_free(io);
    if (!region) {
        snprintf(why, why_bytes, "region: expected at most %u for each I/O thread, found as many",
                 LM_REGIONS_MAX);
        return LM_STATUS_OVERLOADED;
    }
    if (!count_bytes(io->shared, bytes)) {
        /* relaxed: for the sentence alone */
        snprintf(why, why_bytes,
                 "region: %llu bytes beside %llu of other clients are more than "
                 "server.shared_memory_bytes (%llu)",
                 (unsigned long long)bytes,
                 (unsigned long long)lm_load_relaxed_u64(&io->shared->region_bytes),
                 (unsigned long long)io->shared->config.shared_memory_bytes);
        return LM_STATUS_TOO_LARGE;
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        (void)lm_sub_relaxed_u64(&io->shared->region_bytes, bytes); /* relaxed: as above */
        snprintf(
            why, why_bytes,
            "region: cannot be mapped to be read and written (errno %d): expected a memfd open "
            "for both, without F_SEAL_WRITE",
            errno);
        return LM_STATUS_BAD_REQUEST;
    }
    lm_region_drop(io, connection);
    *region = (struct lm_region){.base = base, .bytes = (size_t)bytes, .counted = bytes, .uses = 1};
    connection->region = (uint16_t)(region - io->regions);
    io->regions_mapped++;
    io->region_bytes += bytes;
    publish(io);
    return LM_STATUS_OK;
}

void lm_region_drop(struct lm_io *io, struct lm_connection *connection) {
    if (connection->region == LM_NO_REGION) return;
    let_go(io, &io->regions[connection->region]);
    connection->region = LM_NO_REGION;
}

void lm_region_hold(struct lm_io *io, const struct lm_connection *connection,
                    struct lm_request *request) {
    request->carrier = LM_CARRIER_REGION;
    request->region = &io->regions[connection->region];
    request->region->uses++;
}

void lm_region_release(struct lm_io *io, struct lm_request *request) {
    let_go(io, request->region);
    request->region = NULL;
}
