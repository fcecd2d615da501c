/* test_http_date.c: the Date header against the C library's own calendar. */
#include <time.h>

#include "check.h"
#include "parts/http_date.h"

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

/* The thread's line is written anew when its second has passed. */
static void now(void) {
    char line[LM_HTTP_DATE_LINE_BYTES + 1];
    for (int lap = 0; lap < 2; lap++) {
        time_t before, after;
        do {
            before = time(NULL);
            strcpy(line, lm_http_date_line());
            after = time(NULL);
        } while (lap == 1 && after == before); /* into the next second */
        bool found = false;
        for (time_t second = before - 1; second <= after;
             second++) { /* the clock is a coarse one */
            char expected[LM_HTTP_DATE_LINE_BYTES + 1];
            lm_http_date_write(expected, (uint64_t)second);
            found = found || strcmp(line, expected) == 0;
        }
        CHECK(found);
    }
}

int main(void) {
    uint64_t random = check_seed();
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
    return check_finish("test_http_date");
}
