/* test_region.c: memory shared with clients (rows 20, F21): what is taken, what is refused, and
 * that all of it is unmapped when its last user has gone, and not before.
 */
#include "flow/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "check.h"

enum { MIB = 1 << 20, LIMIT = 64 * MIB, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static struct lm_shared shared;
static struct lm_io io;
static struct lm_stats_block stats;
static struct lm_connection one = {.region = LM_NO_REGION}, two = {.region = LM_NO_REGION};

static int memory(off_t bytes, int seals) {
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, bytes) == 0);
    CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static enum lm_status take(struct lm_connection *connection, int fd, const char *words) {
    char why[LM_TEXT_BYTES_MAX] = "";
    enum lm_status status = lm_region_take(&io, connection, fd, why, sizeof why);
    CHECK((status == LM_STATUS_OK) == (why[0] == '\0'));
    CHECK(strstr(why, words));
    close(fd);
    return status;
}

static void holds(uint32_t regions, uint64_t bytes) {
    CHECK(io.regions_mapped == regions && io.region_bytes == bytes);
    CHECK(lm_load_relaxed_u64(&shared.region_bytes) == bytes);
    CHECK(lm_load_relaxed_u64(&stats.io.regions) == regions);
    CHECK(lm_load_relaxed_u64(&stats.io.region_bytes) == bytes);
}

/* As the I/O thread does in its turns. Returns how many it takes. */
static uint32_t unmap(void) {
    uint32_t turns = 0;
    for (; io.regions_unused; turns++) lm_region_unmap(&io);
    return turns;
}

static void kinds(void) {
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    CHECK(take(&one, pipes[0], "expected a memfd") == LM_STATUS_BAD_REQUEST);
    close(pipes[1]);
    CHECK(take(&one, open("/", O_RDONLY), "expected a memfd") == LM_STATUS_BAD_REQUEST);
    CHECK(take(&one, open("/dev/zero", O_RDWR), "expected a memfd") == LM_STATUS_BAD_REQUEST);
    CHECK(take(&one, memory(MIB, 0), "F_SEAL_SHRINK") == LM_STATUS_BAD_REQUEST);
    CHECK(take(&one, memory(MIB, F_SEAL_GROW), "F_SEAL_SHRINK") == LM_STATUS_BAD_REQUEST);
    CHECK(take(&one, memory(MIB, SEALS | F_SEAL_WRITE), "F_SEAL_WRITE") == LM_STATUS_BAD_REQUEST);
    CHECK(take(&one, memory(0, SEALS), "expected bytes") == LM_STATUS_BAD_REQUEST);
    CHECK(take(&one, memory(LIMIT + 1, SEALS), "shared_memory_bytes") == LM_STATUS_TOO_LARGE);
    CHECK(take(&one, memory(1ll << 62, SEALS), "shared_memory_bytes") == LM_STATUS_TOO_LARGE);
    CHECK(one.region == LM_NO_REGION);
    holds(0, 0);
}

/* Of any size, also no whole page; its last byte is there. */
static void sizes(void) {
    static const off_t of[] = {1, 4095, 4096, 4097, LM_UNMAP_BYTES, LM_UNMAP_BYTES + 1, LIMIT};
    for (uint32_t s = 0; s < sizeof of / sizeof *of; s++) {
        CHECK(take(&one, memory(of[s], SEALS), "") == LM_STATUS_OK);
        holds(1, (uint64_t)of[s]);
        struct lm_region *region = &io.regions[one.region];
        region->base[0] = region->base[of[s] - 1] = 1;
        lm_region_drop(&io, &one);
        CHECK(unmap() == (uint32_t)((of[s] + LM_UNMAP_BYTES - 1) / LM_UNMAP_BYTES));
        holds(0, 0);
    }
    lm_region_drop(&io, &one); /* it has none */
}

static void users(void) {
    struct lm_request request = {0}, other = {0};
    CHECK(take(&one, memory(MIB, SEALS), "") == LM_STATUS_OK);
    uint8_t *first = io.regions[one.region].base;
    lm_region_hold(&io, &one, &request);
    lm_region_hold(&io, &one, &other);
    CHECK(take(&one, memory(2 * MIB, SEALS), "") == LM_STATUS_OK); /* in its place */
    CHECK(take(&two, memory(3 * MIB, SEALS), "") == LM_STATUS_OK);
    CHECK(take(&two, memory(MIB, 0), "F_SEAL_SHRINK") == LM_STATUS_BAD_REQUEST);
    CHECK(io.regions[two.region].bytes == 3 * MIB); /* a bad one takes nobody's place */
    CHECK(take(&two, memory(LIMIT - 5 * MIB, SEALS), "beside") == LM_STATUS_TOO_LARGE);
    CHECK(unmap() == 0);
    holds(3, 6 * MIB);
    lm_region_drop(&io, &one);
    lm_region_release(&io, &request);
    CHECK(unmap() == 1 && !request.region);
    holds(2, 4 * MIB);
    first[MIB - 1] = 1; /* still there for the other one */
    lm_region_release(&io, &other);
    lm_region_drop(&io, &two);
    CHECK(unmap() == 2);
    holds(0, 0);
}

static void so_many_and_no_more(void) {
    static struct lm_connection many[LM_REGIONS_MAX + 1];
    for (uint32_t c = 0; c <= LM_REGIONS_MAX; c++) {
        many[c].region = LM_NO_REGION;
        bool fits = c < LM_REGIONS_MAX;
        enum lm_status status = take(&many[c], memory(4096, SEALS), fits ? "" : "at most 256");
        CHECK(status == (fits ? LM_STATUS_OK : LM_STATUS_OVERLOADED));
    }
    holds(LM_REGIONS_MAX, LM_REGIONS_MAX * 4096);
    for (uint32_t c = 0; c < LM_REGIONS_MAX; c += 2) lm_region_drop(&io, &many[c]);
    CHECK(unmap() == LM_REGIONS_MAX / 2);
    CHECK(take(&many[0], memory(4096, SEALS), "") == LM_STATUS_OK);
    lm_region_close_all(&io);
}

int main(void) {
    io.shared = &shared;
    io.stats = &stats;
    shared.config.shared_memory_bytes = LIMIT;
    kinds();
    sizes();
    users();
    so_many_and_no_more();
    return check_finish("test_region");
}
