/* test_descriptors.c: the soft limit of open files follows what is wanted, up to the hard one. */
#include <sys/resource.h>

#include "base/descriptors.h"
#include "check.h"

static struct rlimit now(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    return limit;
}

int main(void) {
    struct rlimit limit = now();
    limit.rlim_cur = 64;
    limit.rlim_max = 128;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(lm_descriptors_allow(32) == 64); /* never lowered */
    CHECK(now().rlim_cur == 64);
    CHECK(lm_descriptors_allow(64) == 64);
    CHECK(lm_descriptors_allow(100) == 100);
    CHECK(now().rlim_cur == 100 && now().rlim_max == 128);
    CHECK(lm_descriptors_allow(1 << 20) == 128);
    CHECK(now().rlim_cur == 128 && now().rlim_max == 128);
    CHECK(lm_descriptors_allow(1 << 20) == 128);
    return 0;
}
