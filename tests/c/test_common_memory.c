/* test_common_memory.c: parts of memory that two mappings of one file have in common. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/common_memory.h"
#include "base/error.h"
#include "check.h"

enum { PART = 2 << 20 };

static bool is_zero(const struct lm_mapping *mapping) {
    const uint8_t *bytes = mapping->base;
    for (size_t at = 0; at < mapping->bytes; at += 64) {
        if (bytes[at]) return false;
    }
    return true;
}

static void takes_parts(void) {
    struct lm_common_memory memory;
    struct lm_mapping parts[4], more;
    CHECK(lm_common_memory_open(&memory, 4 * PART) == 0);
    for (int p = 0; p < 4; p++) {
        CHECK(lm_common_memory_take(&memory, &parts[p], 100, LUMEN_HUGE_TRANSPARENT) == 0);
        CHECK(parts[p].bytes == PART);
        CHECK(is_zero(&parts[p]));
        memset(parts[p].base, p + 1, PART);
    }
    CHECK(lm_common_memory_take(&memory, &more, 1, LUMEN_HUGE_NONE) == LUMEN_E_NOMEM);
    CHECK(more.base == NULL && strstr(lm_error_last(), "not left"));
    /* Two neighbours make room for a part of both, and what was there is gone. */
    lm_common_memory_give_back(&memory, &parts[1]);
    CHECK(lm_common_memory_take(&memory, &more, PART + 1, LUMEN_HUGE_NONE) == LUMEN_E_NOMEM);
    lm_common_memory_give_back(&memory, &parts[2]);
    CHECK(lm_common_memory_take(&memory, &more, PART + 1, LUMEN_HUGE_NONE) == 0);
    CHECK(more.bytes == 2 * PART && is_zero(&more));
    CHECK(*(uint8_t *)parts[0].base == 1 && *(uint8_t *)parts[3].base == 4);
    lm_common_memory_give_back(&memory, &more);
    lm_common_memory_give_back(&memory, &more); /* twice does nothing */
    lm_common_memory_close(&memory);
}

static void two_mappings(void) {
    struct lm_common_memory ours, theirs;
    struct lm_mapping part;
    CHECK(lm_common_memory_open(&ours, 8 * PART) == 0);
    CHECK(lm_common_memory_join(&theirs, dup(ours.fd), ours.bytes) == 0);
    CHECK(lm_common_memory_take(&ours, &part, PART, LUMEN_HUGE_TRANSPARENT) == 0);
    size_t at = (size_t)((uint8_t *)part.base - ours.base);
    memcpy(part.base, "asked", 6);
    CHECK(strcmp((char *)theirs.base + at, "asked") == 0);
    memcpy(theirs.base + at, "answered", 9);
    CHECK(strcmp(part.base, "answered") == 0);
    lm_common_memory_close(&theirs);
    lm_common_memory_give_back(&ours, &part);
    lm_common_memory_close(&ours);
    CHECK(lm_common_memory_join(&theirs, -1, PART) == LUMEN_E_NOMEM);
}

int main(void) {
    takes_parts();
    two_mappings();
    return check_finish("test_common_memory");
}
