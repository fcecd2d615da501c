/* descriptors.c: see descriptors.h. Start-up only; the limit is the whole process's. */
#include "base/descriptors.h"

#include <sys/resource.h>

uint64_t lm_descriptors_allow(uint64_t wanted) {
    struct rlimit limit; /* RLIM_INFINITY is the largest number */
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
    if (limit.rlim_cur >= wanted) return limit.rlim_cur;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}
