/* test_error.c: the last error is a sentence of its thread, with the errno's name where there is
 * one.
 */
#include <pthread.h>

#include "base/error.h"
#include "check.h"

enum { BYTES = 2048 }; /* of a sentence, with its terminator */

static void *another_thread(void *unused) {
    (void)unused;
    CHECK(lm_error_last()[0] == '\0');
    CHECK(lm_error(LUMEN_E_IO, "of another thread") == LUMEN_E_IO);
    return NULL;
}

int main(void) {
    static char text[4096];
    pthread_t thread;
    CHECK(lm_error_last()[0] == '\0');
    CHECK(lm_error(LUMEN_E_MODEL, "model %d", 7) == LUMEN_E_MODEL);
    CHECK(pthread_create(&thread, NULL, another_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(lm_error_last(), "model 7") == 0);
    /* The kernel returns negative numbers, errno holds positive ones. */
    for (int sign = -1; sign <= 1; sign += 2) {
        CHECK(lm_error_errno(LUMEN_E_IO, sign * EBADF, "ring %s", "x") == LUMEN_E_IO);
        CHECK(strcmp(lm_error_last(), "ring x: EBADF (Bad file descriptor)") == 0);
    }
    CHECK(lm_error_errno(LUMEN_E_NOMEM, 99999, "odd") == LUMEN_E_NOMEM);
    CHECK(strncmp(lm_error_last(), "odd: errno (", 12) == 0 && strstr(lm_error_last(), "99999"));
    memset(text, 'x', sizeof text - 1); /* cut off, never written past */
    CHECK(lm_error(LUMEN_E_IO, "%s", text) == LUMEN_E_IO && strlen(lm_error_last()) == BYTES - 1);
    CHECK(lm_error_errno(LUMEN_E_IO, ENOENT, "%s", text) == LUMEN_E_IO);
    CHECK(strlen(lm_error_last()) == BYTES - 1);
    text[BYTES - 9] = '\0';
    CHECK(lm_error_errno(LUMEN_E_IO, ENOENT, "%s", text) == LUMEN_E_IO);
    CHECK(strlen(lm_error_last()) == BYTES - 1 &&
          strcmp(lm_error_last() + BYTES - 9, ": ENOENT") == 0);
    /* However long it would be: what comes behind is not written either. */
    CHECK(lm_error_errno(LUMEN_E_IO, ENOENT, "%*s", 1 << 26, "x") == LUMEN_E_IO);
    CHECK(strlen(lm_error_last()) == BYTES - 1 && strspn(lm_error_last(), " ") == BYTES - 1);
    CHECK(lm_error_errno(LUMEN_E_IO, EBADF, "%s", "") == LUMEN_E_IO);
    CHECK(strcmp(lm_error_last(), ": EBADF (Bad file descriptor)") == 0);
    return check_finish("test_error");
}
