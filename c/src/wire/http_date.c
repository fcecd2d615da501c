/* http_date.c: see http_date.h. gmtime would take the C library's lock on time zones. */
#include "wire/http_date.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

enum { DAY_S = 86400, YEAR_MAX = 9999 };

static bool is_leap(uint32_t year) {
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static uint32_t days_of(uint32_t year, uint32_t month) {
    static const uint8_t days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month == 1 && is_leap(year) ? 29 : days[month];
}

void lm_http_date_write(char line[LM_HTTP_DATE_LINE_BYTES + 1], uint64_t unix_s) {
    static const char weekdays[7][4] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    uint64_t days = unix_s / DAY_S, second = unix_s % DAY_S;
    uint32_t year = 1970, month = 0;
    const char *weekday = weekdays[days % 7];
    while (year < YEAR_MAX && days >= 365u + is_leap(year)) days -= 365u + is_leap(year++);
    while (month < 11 && days >= days_of(year, month)) days -= days_of(year, month++);
    uint32_t day = days < 31 ? (uint32_t)days + 1 : 31; /* past the last year: its last day */
    snprintf(line, LM_HTTP_DATE_LINE_BYTES + 1, "Date: %s, %02u %s %04u %02u:%02u:%02u GMT\r\n",
             weekday, day, months[month], year, (uint32_t)(second / 3600),
             (uint32_t)(second / 60 % 60), (uint32_t)(second % 60));
}

const char *lm_http_date_line(void) {
    static _Thread_local struct {
        time_t second;
        char line[LM_HTTP_DATE_LINE_BYTES + 1];
    } last;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (now.tv_sec != last.second || !last.line[0]) {
        last.second = now.tv_sec;
        lm_http_date_write(last.line, now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec);
    }
    return last.line;
}
