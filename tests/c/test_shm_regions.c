/* test_shm_regions.c: regions that clients register (rows 20, F21): what may be registered, what is
 * read and written, and that threads which look a region up, copy and unregister it at the same
 * time never see another's file, nor one that is closed.
 */
#include "parts/shm_regions.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomics.h"
#include "check.h"

enum { FILE_BYTES = 4096, READERS = 2, ROUNDS = CHECK_UNDER_TSAN ? 300 : 2000 };

static struct lm_shm_regions *regions;
static char keys[2][64];
static lm_atomic_u32 stop;
static lm_atomic_u64 reads;

static void make_file(uint32_t file) {
    char path[256];
    uint8_t bytes[FILE_BYTES];
    snprintf(keys[file], sizeof keys[file], "shm-test-c-%d-%u", (int)getpid(), file);
    snprintf(path, sizeof path, "/dev/shm/%s", keys[file]);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    memset(bytes, 'a' + (int)file, sizeof bytes);
    CHECK(fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes);
    close(fd);
}

static void remove_files(void) {
    char path[256];
    for (uint32_t f = 0; f < 2; f++) {
        snprintf(path, sizeof path, "/dev/shm/%s", keys[f]);
        unlink(path);
    }
}

static enum lm_status add(const char *name, const char *key, uint64_t offset, uint64_t bytes) {
    struct lm_shm_info info = {.offset = offset, .bytes = bytes};
    char why[512] = "";
    snprintf(info.name, sizeof info.name, "%s", name);
    snprintf(info.key, sizeof info.key, "%s", key);
    enum lm_status status = lm_shm_register(regions, &info, why, sizeof why);
    CHECK((status == LM_STATUS_OK) == (why[0] == '\0'));
    return status;
}

static uint32_t open_files(void) {
    uint32_t count = 0;
    DIR *all = opendir("/proc/self/fd");
    CHECK(all);
    while (readdir(all)) count++;
    closedir(all);
    return count;
}

static void one_after_another(void) {
    struct lm_shm_handle handle, old;
    struct lm_shm_info info;
    uint64_t bytes = 0;
    uint8_t data[64];
    char why[512];
    uint32_t before = open_files();
    CHECK(add("r", keys[0], 64, 128) == LM_STATUS_OK);
    CHECK(add("r", keys[1], 0, 64) == LM_STATUS_BAD_REQUEST);
    CHECK(add("s", keys[1], 0, FILE_BYTES + 1) == LM_STATUS_BAD_REQUEST);
    CHECK(add("s", keys[1], UINT64_MAX, 2) == LM_STATUS_BAD_REQUEST);
    CHECK(add("s", keys[1], FILE_BYTES, 1) == LM_STATUS_BAD_REQUEST);
    CHECK(add("s", "../shm/x", 0, 1) == LM_STATUS_BAD_REQUEST);
    CHECK(add("s", "lumen-1", 0, 1) == LM_STATUS_BAD_REQUEST);
    CHECK(add("", keys[1], 0, 1) == LM_STATUS_BAD_REQUEST);
    CHECK(lm_shm_list(regions, 0, &info) && strcmp(info.key, keys[0]) == 0 && info.bytes == 128);
    CHECK(!lm_shm_find(regions, "rr", 2, &handle, &bytes));
    CHECK(!lm_shm_find(regions, "", 0, &handle, &bytes));
    CHECK(lm_shm_find(regions, "rr", 1, &handle, &bytes) && bytes == 128);
    CHECK(lm_shm_write(regions, handle, 8, "written", 7, why, sizeof why));
    CHECK(lm_shm_read(regions, handle, 7, data, 9, why, sizeof why));
    CHECK(memcmp(data, "awrittena", 9) == 0);
    old = handle;
    CHECK(lm_shm_unregister(regions, "r") && !lm_shm_unregister(regions, "r"));
    CHECK(!lm_shm_list(regions, 0, &info));
    CHECK(!lm_shm_read(regions, old, 0, data, 1, why, sizeof why) && strstr(why, "unregistered"));
    CHECK(add("r", keys[1], 0, 64) == LM_STATUS_OK); /* at the same place */
    CHECK(lm_shm_find(regions, "r", 1, &handle, &bytes) && handle.index == old.index);
    CHECK(!lm_shm_read(regions, old, 0, data, 1, why, sizeof why) && strstr(why, "unregistered"));
    CHECK(lm_shm_read(regions, handle, 0, data, 1, why, sizeof why) && data[0] == 'b');
    /* A region that is held stays, is found, and keeps its name until it is let go. */
    CHECK(lm_shm_hold(regions, handle) && !lm_shm_hold(regions, old));
    CHECK(lm_shm_unregister(regions, "r") && lm_shm_unregister(regions, "r"));
    CHECK(lm_shm_list(regions, handle.index, &info));
    CHECK(lm_shm_find(regions, "r", 1, &old, &bytes) && lm_shm_hold(regions, old));
    CHECK(add("r", keys[0], 0, 64) == LM_STATUS_BAD_REQUEST);
    lm_shm_let_go(regions, handle);
    CHECK(lm_shm_write(regions, handle, 0, "b", 1, why, sizeof why));
    lm_shm_let_go(regions, old);
    CHECK(!lm_shm_list(regions, handle.index, &info) && !lm_shm_hold(regions, handle));
    CHECK(open_files() == before);
}

/* `a` has 64 bytes, `b` 128, both under one name. */
static void *read_on(void *unused) {
    (void)unused;
    while (lm_load_relaxed_u32(&stop) == 0) { /* relaxed: the end alone */
        struct lm_shm_handle handle;
        uint64_t bytes = 0;
        uint8_t data[128];
        char why[512];
        if (!lm_shm_find(regions, "r", 1, &handle, &bytes)) continue;
        CHECK(bytes == 64 || bytes == 128);
        if (!lm_shm_read(regions, handle, 0, data, bytes, why, sizeof why)) {
            CHECK(strstr(why, "unregistered"));
            continue;
        }
        for (uint32_t b = 0; b < bytes; b++) CHECK(data[b] == (bytes == 64 ? 'a' : 'b'));
        if (!lm_shm_hold(regions, handle)) continue;
        CHECK(lm_shm_read(regions, handle, 0, data, bytes, why, sizeof why));
        lm_shm_let_go(regions, handle);
        (void)lm_count_relaxed_u64(&reads, 1); /* relaxed: a count */
    }
    return NULL;
}

static void *unregister_too(void *unused) {
    (void)unused;
    for (uint32_t n = 0; lm_load_relaxed_u32(&stop) == 0; n++) { /* relaxed: as above */
        if (n % 16 == 0) (void)lm_shm_unregister(regions, "r");
        sched_yield();
    }
    return NULL;
}

static void all_at_once(void) {
    pthread_t threads[READERS + 1];
    uint32_t before = open_files();
    for (uint32_t t = 0; t < READERS; t++)
        CHECK(pthread_create(&threads[t], NULL, read_on, NULL) == 0);
    CHECK(pthread_create(&threads[READERS], NULL, unregister_too, NULL) == 0);
    for (uint32_t r = 0; r < ROUNDS; r++) {
        uint64_t before_reads = lm_load_relaxed_u64(&reads); /* relaxed: as above */
        (void)add("r", keys[r % 2], 1024, r % 2 ? 128 : 64);
        for (uint32_t n = 0; n < 32 && lm_load_relaxed_u64(&reads) == before_reads; n++)
            sched_yield(); /* relaxed: as above */
        if (r % 3) (void)lm_shm_unregister(regions, "r");
    }
    lm_store_relaxed_u32(&stop, 1); /* relaxed: as above */
    for (uint32_t t = 0; t <= READERS; t++) pthread_join(threads[t], NULL);
    (void)lm_shm_unregister(regions, "r");
    CHECK(open_files() == before);
    CHECK(lm_load_relaxed_u64(&reads) > 0);
}

int main(void) {
    struct stat status;
    if (stat("/dev/shm", &status) != 0) {
        puts("skipped  test_shm_regions: there is no /dev/shm");
        return 77;
    }
    CHECK(atexit(remove_files) == 0);
    make_file(0);
    make_file(1);
    CHECK(lm_shm_open(&regions) == 0);
    one_after_another();
    all_at_once();
    CHECK(add("left", keys[0], 0, 1) == LM_STATUS_OK);
    lm_shm_close(regions);
    return check_finish("test_shm_regions");
}
