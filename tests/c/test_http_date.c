/* test_http_date.c: the Date header against the C library's own calendar, and while the clock is
 * set.
 */
#include <time.h>

#include "check.h"

static time_t set_by_s;

static int set_clock(clockid_t clock, struct timespec *now_out) {
    int code = clock_gettime(clock, now_out);
    now_out->tv_sec += set_by_s;
    return code;
}

/* The file itself, which asks this clock. */
#define clock_gettime set_clock
#include "wire/http_date.c"

static void check_second(uint64_t unix_s) {
    char expected[64], line[LM_HTTP_DATE_LINE_BYTES + 1];
    time_t when = (time_t)unix_s;
    struct tm tm;
    CHECK(gmtime_r(&when, &tm) &&
          strftime(expected, sizeof expected, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm) > 0);
    memset(line, '#', sizeof line);
    lm_http_date_write(line, unix_s);
    CHECK_AT("second %llu: %s", (unsigned long long)unix_s, line);
    CHECK(strcmp(line, expected) == 0 && strlen(line) == LM_HTTP_DATE_LINE_BYTES);
}

static time_t coarse_second(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0);
    return now.tv_sec;
}

/* Returns the second, 0 when it ended meanwhile. */
static time_t check_line(void) {
    char line[LM_HTTP_DATE_LINE_BYTES + 1], expected[LM_HTTP_DATE_LINE_BYTES + 1];
    time_t before = coarse_second();
    strcpy(line, lm_http_date_line());
    time_t after = coarse_second();
    bool found = false;
    for (time_t second = before; second <= after; second++) {
        lm_http_date_write(expected, second < 0 ? 0 : (uint64_t)second);
        found = found || strcmp(line, expected) == 0;
    }
    CHECK_AT("%s in second %lld", line, (long long)before);
    CHECK(found);
    return before == after ? before : 0;
}

/* The thread's line is written anew when its second has passed, not later. */
static void now(void) {
    time_t first = coarse_second();
    while (check_line() < first + 1) continue;
}

/* A clock may go back, by a second or by years, and before 1970 the line says 1970. */
static void set_back(void) {
    static const time_t steps[] = {0, -1, 5, -3600, 86400, -400ll * 86400, -100ll * 365 * 86400, 0};
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        set_by_s = steps[s];
        (void)check_line();
    }
}

int main(void) {
    uint64_t random = check_seed();
    check_watchdog(120, "a date");
    static const uint64_t edges[] = {0,          86399,      86400,       68169600,   951782399,
                                     951782400,  951868800,  4107542399,  4107542400, 2147483647,
                                     2147483648, 4294967296, 253402300799};
    for (size_t e = 0; e < sizeof edges / sizeof edges[0]; e++) check_second(edges[e]);
    for (uint32_t i = 0; i < 20000; i++) check_second(check_random(&random) % 253402300800u);
    for (uint64_t day = 0; day < 60000; day++) check_second(day * 86400);
    char line[LM_HTTP_DATE_LINE_BYTES + 1];
    lm_http_date_write(line, UINT64_MAX); /* no sense, and no harm */
    CHECK(strlen(line) == LM_HTTP_DATE_LINE_BYTES);
    now();
    set_back();
    return check_finish("test_http_date");
}
