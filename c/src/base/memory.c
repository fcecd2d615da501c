/* memory.c: see memory.h. Start-up only. */
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static const size_t huge_page_bytes = 2u << 20;

int lm_mapping_reserve(struct lm_mapping *mapping, size_t bytes) {
    *mapping = (struct lm_mapping){0};
    size_t page = bytes >= huge_page_bytes ? huge_page_bytes : (size_t)sysconf(_SC_PAGESIZE);
    size_t rounded = lm_align_up(bytes ? bytes : 1, page);
    void *base = mmap(NULL, rounded, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return lm_error_errno(LUMEN_E_NOMEM, errno,
                              "cannot map %zu bytes (lower server.arena_bytes?)", rounded);
    }
    mapping->base = base;
    mapping->bytes = rounded;
    if (page == huge_page_bytes) mapping->huge_pages = madvise(base, rounded, MADV_HUGEPAGE) == 0;
    /* After fork a child must not share these pages: the kernel may still write to them. */
    madvise(base, rounded, MADV_DONTFORK);
    return 0;
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

void lm_mapping_close(struct lm_mapping *mapping) {
    if (mapping->base) munmap(mapping->base, mapping->bytes);
    *mapping = (struct lm_mapping){0};
}

int lm_file_map(struct lm_mapping *mapping, const char *path) {
    *mapping = (struct lm_mapping){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0) return lm_error_errno(LUMEN_E_IO, errno, "cannot open %s", path);
    struct stat status;
    int code = 0;
    if (fstat(fd, &status) != 0) {
        code = lm_error_errno(LUMEN_E_IO, errno, "cannot stat %s", path);
    } else if (!S_ISREG(status.st_mode) || status.st_size == 0) {
        code = lm_error(LUMEN_E_IO, "%s: expected a regular, non-empty file", path);
    } else {
        void *base =
            mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
        if (base == MAP_FAILED) {
            code = lm_error_errno(LUMEN_E_NOMEM, errno, "cannot map %s", path);
        } else {
            mapping->base = base;
            mapping->bytes = (size_t)status.st_size;
        }
    }
    close(fd);
    return code;
}
