/* error.c: one thread-local sentence; see error.h. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char last_error[2048];

/* glibc has it from 2.32 on. The wheel is built for older ones and takes it where it is. */
extern const char *strerrorname_np(int number) __attribute__((weak));

int lm_error(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return code;
}

int lm_error_errno(int code, int errno_value, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int used = vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    if (used < 0 || (size_t)used >= sizeof last_error) return code;
    int number = errno_value < 0 ? -errno_value : errno_value;
    const char *name = strerrorname_np ? strerrorname_np(number) : NULL;
    char text[128];
    snprintf(last_error + used, sizeof last_error - (size_t)used, ": %s (%s)",
             name ? name : "errno", strerror_r(number, text, sizeof text));
    return code;
}

const char *lm_error_last(void) {
    return last_error;
}

_Noreturn void lm_assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "lumen: assertion failed: %s (%s:%d); this is a bug in Lumen\n", condition,
            file, line);
    abort();
}
