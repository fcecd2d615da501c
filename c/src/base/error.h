/* error.h: the calling thread's last error as one sentence. Cold paths only. */
#ifndef LM_BASE_ERROR_H
#define LM_BASE_ERROR_H

#include "lumen.h"

/* Stores the sentence and returns `code`, so that a failure is `return lm_error(...)`. */
int lm_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, with ": ENAME (text of errno)" at the end. `errno_value` may be negative. */
int lm_error_errno(int code, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *lm_error_last(void);

/* Always on, in cold paths; says where and ends the process. */
#define LM_ASSERT(condition)                                                \
    do {                                                                    \
        if (!(condition)) lm_assert_failed(#condition, __FILE__, __LINE__); \
    } while (0)
_Noreturn void lm_assert_failed(const char *condition, const char *file, int line);

/* In hot paths: on in debug and sanitizer builds. */
#ifdef LM_DEBUG
#define LM_DEBUG_ASSERT(condition) LM_ASSERT(condition)
#else
#define LM_DEBUG_ASSERT(condition) ((void)0)
#endif

#endif
