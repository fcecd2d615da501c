/* break_ring.c: loaded before everything else, it lets epoll_wait fail on one thread of a server
 * from the moment a file is there: what a kernel does whose ring cannot be waited on any more.
 * The file of I/O thread 1 is what BREAK_FILE says with a 1 behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms) {
    static int (*real)(int, struct epoll_event *, int, int);
    static const char io[] = "lumen-io/";
    char name[16] = "", path[512];
    const char *file = getenv("BREAK_FILE");
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    pthread_getname_np(pthread_self(), name, sizeof name);
    bool is_io = strncmp(name, io, sizeof io - 1) == 0;
    snprintf(path, sizeof path, "%s%s", file ? file : "", name + sizeof io - 1);
    if (file && is_io && access(path, F_OK) == 0) {
        errno = EBADF;
        return -1;
    }
    return real(fd, events, most, timeout_ms);
}
