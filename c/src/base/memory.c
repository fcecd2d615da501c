/* memory.c: see memory.h. Start-up only. */
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"

static const size_t huge_page_bytes = 2u << 20;
enum { HUGE_PAGES_OF_2_MIB = 21 << 26 /* MAP_HUGE_SHIFT */ };

/* ---- nodes ---- */

/* Of this thread's mappings; -1: any. */
static _Thread_local int32_t preferred_node = -1;

enum { NODES_MAX = 1024, NODE_WORDS = NODES_MAX / 64, PAGES_AT_ONCE = 512 };

/* A node that has no memory left must not end the process: others are the second choice. */
void lm_memory_bind(void *base, size_t bytes, int32_t node) {
    unsigned long mask[NODE_WORDS] = {0};
    if (node < 0 || node >= NODES_MAX) return;
    mask[node / 64] = 1ul << (node % 64);
    (void)syscall(SYS_mbind, base, bytes, MPOL_PREFERRED, mask, NODES_MAX + 1, 0);
}

void lm_memory_prefer(int32_t node) {
    unsigned long mask[NODE_WORDS] = {0};
    preferred_node = node < NODES_MAX ? node : -1;
    if (preferred_node < 0) {
        (void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
        return;
    }
    mask[node / 64] = 1ul << (node % 64);
    (void)syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, NODES_MAX + 1);
}

void lm_memory_bind_preferred(void *base, size_t bytes) {
    if (preferred_node >= 0) lm_memory_bind(base, bytes, preferred_node);
}

bool lm_memory_where(const void *base, size_t bytes, int32_t node, struct lm_pages *pages) {
    const char *at = base, *end = at + bytes;
    while (at < end) {
        const void *asked[PAGES_AT_ONCE];
        int found[PAGES_AT_ONCE];
        unsigned long count = 0;
        for (; at < end && count < PAGES_AT_ONCE; at += 4096) asked[count++] = at;
        if (syscall(SYS_move_pages, 0, count, asked, NULL, found, 0) != 0) return false;
        for (unsigned long p = 0; p < count; p++) {
            pages->here += found[p] == node;
            pages->elsewhere += found[p] >= 0 && found[p] != node;
            pages->absent += found[p] < 0;
        }
    }
    return true;
}

/* ---- mappings ---- */

/* From the pool of huge pages. Without MAP_NORESERVE the kernel says now what it does not have. */
static void *map_reserved(size_t bytes) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | HUGE_PAGES_OF_2_MIB, -1, 0);
}

int lm_mapping_reserve_on(struct lm_mapping *mapping, size_t bytes, uint32_t huge_pages) {
    *mapping = (struct lm_mapping){0};
    bool large = bytes >= huge_page_bytes;
    size_t page = large ? huge_page_bytes : (size_t)sysconf(_SC_PAGESIZE);
    size_t rounded = lm_align_up(bytes ? bytes : 1, page);
    void *base = large && huge_pages == LUMEN_HUGE_EXPLICIT ? map_reserved(rounded) : MAP_FAILED;
    mapping->reserved = base != MAP_FAILED;
    if (!mapping->reserved) {
        base = mmap(NULL, rounded, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (base == MAP_FAILED) {
        return lm_error_errno(LUMEN_E_NOMEM, errno,
                              "cannot map %zu bytes (lower server.arena_bytes?)", rounded);
    }
    mapping->base = base;
    mapping->bytes = rounded;
    if (huge_pages == LUMEN_HUGE_NONE) {
        madvise(base, rounded, MADV_NOHUGEPAGE);
    } else {
        mapping->huge_pages =
            mapping->reserved || (large && madvise(base, rounded, MADV_HUGEPAGE) == 0);
    }
    lm_memory_bind_preferred(base, rounded);
    /* After fork a child must not share these pages: the kernel may still write to them. */
    madvise(base, rounded, MADV_DONTFORK);
    return 0;
}

int lm_mapping_reserve(struct lm_mapping *mapping, size_t bytes) {
    return lm_mapping_reserve_on(mapping, bytes, LUMEN_HUGE_TRANSPARENT);
}

void lm_mapping_touch(struct lm_mapping *mapping, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) ((volatile char *)mapping->base)[at] = 0;
}

int lm_mapping_open(struct lm_mapping *mapping, size_t bytes) {
    int code = lm_mapping_reserve(mapping, bytes);
    /* A page fault on a request's path costs more than a system call: take them all now. */
    if (!code) lm_mapping_touch(mapping, mapping->bytes);
    return code;
}

static void give_back(void *at, size_t bytes) {
    /* The kernel refuses it while the memory is locked. */
    if (madvise(at, bytes, MADV_DONTNEED) != 0 && munlock(at, bytes) == 0)
        (void)madvise(at, bytes, MADV_DONTNEED);
}

void lm_mapping_close(struct lm_mapping *mapping) {
    const size_t bytes = mapping->base ? mapping->bytes : 0;
    /* Page faults of the process's other threads wait for munmap, which takes long where there are
     * pages: these are given back first, in parts. */
    for (size_t at = 0; at < bytes; at += LM_UNMAP_BYTES)
        give_back((char *)mapping->base + at,
                  bytes - at < LM_UNMAP_BYTES ? bytes - at : LM_UNMAP_BYTES);
    if (bytes) munmap(mapping->base, bytes);
    *mapping = (struct lm_mapping){0};
}

void lm_mapping_forget(struct lm_mapping *mapping, size_t at, size_t bytes) {
    (void)madvise((char *)mapping->base + at, bytes, MADV_DONTNEED);
}

uint64_t lm_memory_usable(void) {
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        char text[32] = "";
        int fd = open(limits[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        ssize_t count = read(fd, text, sizeof text - 1);
        close(fd);
        /* "max", or a number near 2^63, where there is no limit. */
        uint64_t limit = count > 0 ? strtoull(text, NULL, 10) : 0;
        if (limit > 0 && limit < bytes) bytes = limit;
    }
    return bytes;
}

/* Opens a file that is not empty. Returns its descriptor, or LUMEN_E_*, which is below 0. */
static int open_regular(const char *path, size_t *bytes_out) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0) return lm_error_errno(LUMEN_E_IO, errno, "cannot open %s", path);
    int code = 0;
    if (fstat(fd, &status) != 0) {
        code = lm_error_errno(LUMEN_E_IO, errno, "cannot stat %s", path);
    } else if (!S_ISREG(status.st_mode) || status.st_size == 0) {
        code = lm_error(LUMEN_E_IO, "%s: expected a regular, non-empty file", path);
    }
    if (code) close(fd);
    *bytes_out = code ? 0 : (size_t)status.st_size;
    return code ? code : fd;
}

int lm_file_map(struct lm_mapping *mapping, const char *path) {
    *mapping = (struct lm_mapping){0};
    size_t bytes;
    int fd = open_regular(path, &bytes), code = 0;
    if (fd < 0) return fd;
    void *base = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (base == MAP_FAILED) {
        code = lm_error_errno(LUMEN_E_NOMEM, errno, "cannot map %s", path);
    } else {
        *mapping = (struct lm_mapping){.base = base, .bytes = bytes};
    }
    close(fd);
    return code;
}

static int read_all(int fd, uint8_t *to, size_t bytes, const char *path) {
    size_t have = 0;
    while (have < bytes) {
        ssize_t count = read(fd, to + have, bytes - have);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return lm_error_errno(LUMEN_E_IO, errno, "cannot read %s", path);
        if (count == 0)
            return lm_error(LUMEN_E_IO,
                            "%s: expected %zu bytes, found %zu: it was cut while it was read", path,
                            bytes, have);
        have += (size_t)count;
    }
    return 0;
}

int lm_file_read(struct lm_mapping *mapping, const char *path) {
    *mapping = (struct lm_mapping){0};
    size_t bytes;
    int fd = open_regular(path, &bytes), code = 0;
    if (fd < 0) return fd;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        code =
            lm_error_errno(LUMEN_E_NOMEM, errno, "no memory for the %zu bytes of %s", bytes, path);
    } else {
        *mapping = (struct lm_mapping){.base = base, .bytes = bytes};
        code = read_all(fd, base, bytes, path);
    }
    close(fd);
    if (code) lm_mapping_close(mapping);
    return code;
}
