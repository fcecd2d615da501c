/* door.c: see door.h. Control thread only. */
#include "tls/door.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"

int lm_tls_door_open(struct lm_tls_door **door_out, struct lm_tls_context *take_context,
                     struct lm_tls_sessions *sessions) {
    struct lm_tls_door *door = calloc(1, sizeof *door);
    *door_out = door;
    if (!door) {
        lm_tls_context_close(take_context);
        return lm_error(LUMEN_E_NOMEM, "no memory for server.tls");
    }
    door->openssl = take_context->openssl;
    door->context = take_context;
    door->oldest = door->newest = door->free = LM_TLS_NO_PLACE;
    door->listen_fd = -1;
    door->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    door->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&door->news_lock, NULL);
    int code = door->epoll_fd < 0 || door->event_fd < 0
                   ? lm_error_errno(LUMEN_E_IO, errno, "server.tls: no descriptor")
                   : 0;
    door->sessions = sessions;
    if (code) {
        lm_tls_door_close(door);
        *door_out = NULL;
    }
    return code;
}

void lm_tls_door_offer(struct lm_tls_door *door, struct lm_tls_context *take_context) {
    const uint64_t one = 1;
    /* T1: release: shows the context; pairs with T2 in tls/handshakes.c. What was
     * offered before was not taken. */
    lm_tls_context_close((struct lm_tls_context *)(uintptr_t)lm_exchange_acq_rel_u64(
        &door->offered, (uint64_t)(uintptr_t)take_context));
    (void)!write(door->event_fd, &one, sizeof one);
}

void lm_tls_door_stop(struct lm_tls_door *door) {
    const uint64_t one = 1;
    if (!door) return;
    lm_store_relaxed_u32(&door->stopping, 1); /* relaxed: says nothing of other memory */
    (void)!write(door->event_fd, &one, sizeof one);
}

void lm_tls_door_join(struct lm_tls_door *door) {
    if (!door || !door->thread_started) return;
    lm_tls_door_stop(door);
    pthread_join(door->thread, NULL);
    door->thread_started = false;
}

void lm_tls_door_close(struct lm_tls_door *door) {
    if (!door) return;
    lm_tls_door_join(door);
    if (door->listen_fd >= 0) close(door->listen_fd);
    if (door->epoll_fd >= 0) close(door->epoll_fd);
    if (door->event_fd >= 0) close(door->event_fd);
    /* relaxed: no thread runs */
    lm_tls_context_close((struct lm_tls_context *)(uintptr_t)lm_load_relaxed_u64(&door->offered));
    while (door->context) {
        struct lm_tls_context *before = door->context->retired;
        lm_tls_context_close(door->context);
        door->context = before;
    }
    pthread_mutex_destroy(&door->news_lock);
    free(door);
}

bool lm_tls_door_news(struct lm_tls_door *door, char *text, size_t bytes) {
    pthread_mutex_lock(&door->news_lock);
    const bool has_news = door->news_count > 0;
    if (has_news)
        snprintf(text, bytes, "TLS: %llu handshakes failed, the last one because: %s",
                 (unsigned long long)door->news_count, door->news);
    door->news_count = 0;
    pthread_mutex_unlock(&door->news_lock);
    return has_news;
}
