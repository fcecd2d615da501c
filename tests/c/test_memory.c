/* test_memory.c: mappings, sizes that overflow, and files that cannot be mapped. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/error.h"
#include "base/memory.h"
#include "check.h"

/* Whether this kernel takes advice about huge pages. */
static bool has_huge_pages(void) {
    struct lm_mapping large;
    CHECK(lm_mapping_reserve(&large, 64u << 20) == 0);
    bool has = large.huge_pages;
    lm_mapping_close(&large);
    return has;
}

static void mappings(void) {
    static const size_t sizes[] = {
        0, 1, 4095, 4096, 4097, 100000, (2u << 20) - 1, 2u << 20, (2u << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct lm_mapping mapping;
        CHECK_AT("%zu bytes", sizes[i]);
        CHECK(lm_mapping_open(&mapping, sizes[i]) == 0);
        CHECK(mapping.base);
        CHECK((uintptr_t)mapping.base % 4096 == 0);
        bool large = sizes[i] >= 2u << 20; /* from one huge page on */
        CHECK(mapping.huge_pages == (large && has_huge_pages()));
        CHECK(mapping.bytes == lm_align_up(sizes[i] ? sizes[i] : 1, large ? 2u << 20 : 4096));
        uint8_t *bytes = mapping.base, any = 0;
        for (size_t at = 0; at < mapping.bytes; at++) any |= bytes[at];
        CHECK(any == 0);
        memset(bytes, 0xff, mapping.bytes);
        lm_mapping_close(&mapping);
        CHECK(mapping.base == NULL && mapping.bytes == 0);
        lm_mapping_close(&mapping); /* closing twice does nothing */
    }
}

/* How many of its pages are in memory; -1: nothing is mapped there. */
static int resident_pages(const struct lm_mapping *mapping) {
    static unsigned char seen[1 << 12];
    size_t pages = mapping->bytes / 4096;
    int count = 0;
    CHECK(pages <= sizeof seen);
    if (mincore(mapping->base, mapping->bytes, seen) != 0) return -1;
    for (size_t p = 0; p < pages; p++) count += seen[p] & 1;
    return count;
}

/* Pages of an open mapping are there before anybody needs them, those of a reserved one are not;
 * and a child of fork has neither, since the kernel may still write to them. */
static void pages_of_mappings(void) {
    static const size_t sizes[] = {4096, 300000, 4u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct lm_mapping open, reserved;
        CHECK_AT("pages of %zu bytes", sizes[i]);
        CHECK(lm_mapping_open(&open, sizes[i]) == 0 &&
              lm_mapping_reserve(&reserved, sizes[i]) == 0);
        CHECK(resident_pages(&open) == (int)(open.bytes / 4096));
        CHECK(resident_pages(&reserved) == 0);
        if (!reserved.huge_pages) {
            lm_mapping_touch(&reserved, sizes[i] > 4096 ? 4097 : 1);
            CHECK(resident_pages(&reserved) == (sizes[i] > 4096 ? 2 : 1));
        }
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            bool gone = resident_pages(&open) == -1 && resident_pages(&reserved) == -1;
            _exit(gone ? 0 : 1);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        lm_mapping_close(&open);
        lm_mapping_close(&reserved);
    }
}

static void impossible_mappings(void) {
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2 + 1, (size_t)1 << 60};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct lm_mapping mapping;
        CHECK_AT("%zu bytes", sizes[i]);
        CHECK(lm_mapping_open(&mapping, sizes[i]) == LUMEN_E_NOMEM);
        CHECK(strstr(lm_error_last(), "arena_bytes") && mapping.base == NULL);
        lm_mapping_close(&mapping);
    }
}

static void sizes(void) {
    size_t product = 7;
    CHECK(lm_mul_size(0, SIZE_MAX, &product) && product == 0);
    CHECK(lm_mul_size(1, SIZE_MAX, &product) && product == SIZE_MAX);
    CHECK(lm_mul_size((size_t)UINT32_MAX, UINT32_MAX, &product) &&
          product == (size_t)UINT32_MAX * UINT32_MAX);
    CHECK(!lm_mul_size(2, SIZE_MAX / 2 + 1, &product));
    CHECK(!lm_mul_size(SIZE_MAX, SIZE_MAX, &product));
    CHECK(!lm_mul_size((size_t)1 << 32, (size_t)1 << 32, &product));
    CHECK(lm_align_up(0, 64) == 0 && lm_align_up(1, 64) == 64 && lm_align_up(64, 64) == 64 &&
          lm_align_up(65, 64) == 128);
}

static void refused(const char *path, const char *reason) {
    struct lm_mapping mapping = {.bytes = 1};
    CHECK_AT("%s", path);
    CHECK(lm_file_map(&mapping, path) == LUMEN_E_IO);
    CHECK(mapping.base == NULL && mapping.bytes == 0);
    CHECK(strstr(lm_error_last(), path) && strstr(lm_error_last(), reason));
    CHECK(lm_file_read(&mapping, path) == LUMEN_E_IO);
    CHECK(mapping.base == NULL && mapping.bytes == 0);
    CHECK(strstr(lm_error_last(), path) && strstr(lm_error_last(), reason));
}

static int lowest_free_descriptor(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && close(fd) == 0);
    return fd;
}

/* Where pages lie, on any machine: what was touched is somewhere, what was not is nowhere. */
static void pages_of_nodes(void) {
    struct lm_mapping mapping;
    struct lm_pages pages = {0};
    CHECK(lm_mapping_reserve_on(&mapping, 3000 * 4096, LUMEN_HUGE_NONE) == 0);
    lm_memory_bind(mapping.base, mapping.bytes, 0);
    lm_memory_bind(mapping.base, mapping.bytes, 5000); /* no node, and no harm */
    lm_mapping_touch(&mapping, 1000 * 4096);
    if (lm_memory_where(mapping.base, mapping.bytes, 0, &pages)) {
        CHECK(pages.here + pages.elsewhere == 1000);
        CHECK(pages.here + pages.elsewhere + pages.absent == mapping.bytes / 4096);
        struct lm_pages others = {0};
        CHECK(lm_memory_where(mapping.base, mapping.bytes, 700, &others));
        CHECK(others.here == 0 && others.elsewhere == 1000);
    }
    lm_mapping_close(&mapping);
    lm_memory_prefer(0);
    CHECK(lm_mapping_open(&mapping, 1 << 20) == 0);
    pages = (struct lm_pages){0};
    if (lm_memory_where(mapping.base, mapping.bytes, 0, &pages))
        CHECK(pages.here == mapping.bytes / 4096 && pages.elsewhere == 0);
    lm_memory_prefer(-1);
    lm_mapping_close(&mapping);
}

/* A model's file is in memory, and in the page table, before anybody needs it. */
static void pages_of_files(void) {
    enum { PAGES = 64 };
    static uint8_t content[PAGES * 4096];
    uint64_t entries[PAGES];
    char path[128];
    struct lm_mapping mapping;
    snprintf(path, sizeof path, "%s/weights", check_temporary_directory());
    check_write_file(path, content, sizeof content);
    CHECK(lm_file_map(&mapping, path) == 0);
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    off_t at = (off_t)((uintptr_t)mapping.base / 4096 * sizeof entries[0]);
    CHECK(pread(fd, entries, sizeof entries, at) == (ssize_t)sizeof entries && close(fd) == 0);
    for (int p = 0; p < PAGES; p++) CHECK(entries[p] >> 63); /* present */
    lm_mapping_close(&mapping);
}

static void files(void) {
    const char *directory = check_temporary_directory();
    int free_descriptor = lowest_free_descriptor();
    char path[128];
    struct lm_mapping mapping;
    snprintf(path, sizeof path, "%s/missing", directory);
    refused(path, "ENOENT");
    refused(directory, "regular");
    refused("/dev/null", "regular");
    snprintf(path, sizeof path, "%s/empty", directory);
    check_write_file(path, "", 0);
    refused(path, "non-empty");
    snprintf(path, sizeof path, "%s/pipe", directory);
    CHECK(mkfifo(path, 0600) == 0);
    check_watchdog(30, "the opening of a pipe that nobody writes to");
    refused(path, "regular");
    check_watchdog(0, "");
    snprintf(path, sizeof path, "%s/empty/below", directory);
    refused(path, "ENOTDIR");
    snprintf(path, sizeof path, "%s/full", directory);
    check_write_file(path, "seven!", 7);
    CHECK(lm_file_map(&mapping, path) == 0);
    CHECK(mapping.bytes == 7 && memcmp(mapping.base, "seven!", 7) == 0);
    lm_mapping_close(&mapping);
    CHECK(lm_file_read(&mapping, path) == 0);
    check_write_file(path, "other", 5); /* in place, and shorter */
    CHECK(mapping.bytes == 7 && memcmp(mapping.base, "seven!", 7) == 0);
    CHECK(unlink(path) == 0 && memcmp(mapping.base, "seven!", 7) == 0);
    lm_mapping_close(&mapping);
    CHECK(lowest_free_descriptor() == free_descriptor); /* none is left open by all these */
    if (geteuid() == 0) return;                         /* root may read everything */
    check_write_file(path, "x", 1);
    CHECK(chmod(path, 0) == 0);
    refused(path, "EACCES");
}

int main(void) {
    mappings();
    pages_of_mappings();
    impossible_mappings();
    sizes();
    files();
    pages_of_files();
    pages_of_nodes();
    return check_finish("test_memory");
}
