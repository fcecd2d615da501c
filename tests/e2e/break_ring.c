/* break_ring.c: loaded before everything else, it lets epoll_wait fail on one thread of a server
 * from the moment a file is there: what a kernel does whose ring cannot be waited on any more.
 * BREAK_THREAD names the thread, BREAK_FILE the file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms) {
    static int (*real)(int, struct epoll_event *, int, int);
    char name[16] = "";
    const char *thread = getenv("BREAK_THREAD"), *file = getenv("BREAK_FILE");
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (thread && file && strcmp(name, thread) == 0 && access(file, F_OK) == 0) {
        errno = EBADF;
        return -1;
    }
    return real(fd, events, most, timeout_ms);
}
