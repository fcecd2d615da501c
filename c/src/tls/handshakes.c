/* handshakes.c: see handshakes.h. */
#include "tls/handshakes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "tls/certificate.h"

enum { ACCEPTS_PER_TURN = 64, EVENTS = 64, NICE = 5, PAUSE_MS = 10 };
/* A TLS record of the kind "handshake". */
enum { FIRST_BYTE = 0x16 };
/* ERR_GET_REASON of what is told apart; reasons from ALERT on are alerts that a client sent. */
enum {
    REASON_ALERT = 1000,
    REASON_ALERT_LAST = 1255,
    REASON_VERIFY_FAILED = 134,
    REASON_NO_CERTIFICATE = 199
};

/* ---- places ---- */

static uint32_t take_place(struct lm_tls_door *door, struct lm_tls_session *session,
                           uint64_t now_ns) {
    uint32_t index = door->free;
    if (index == LM_TLS_NO_PLACE) {
        index = door->used++;
    } else {
        door->free = door->places[index].next;
    }
    door->places[index] = (struct lm_tls_handshake){.session = session,
                                                    .context = door->context,
                                                    .began_ns = now_ns,
                                                    .prev = door->newest,
                                                    .next = LM_TLS_NO_PLACE};
    if (door->newest == LM_TLS_NO_PLACE) {
        door->oldest = index;
    } else {
        door->places[door->newest].next = index;
    }
    door->newest = index;
    door->count++;
    door->context->uses++;
    return index;
}

/* Frees the place; the caller keeps the session. */
static void leave_place(struct lm_tls_door *door, uint32_t index) {
    struct lm_tls_handshake *place = &door->places[index];
    if (place->prev == LM_TLS_NO_PLACE) {
        door->oldest = place->next;
    } else {
        door->places[place->prev].next = place->next;
    }
    if (place->next == LM_TLS_NO_PLACE) {
        door->newest = place->prev;
    } else {
        door->places[place->next].prev = place->prev;
    }
    place->context->uses--;
    place->session = NULL;
    place->next = door->free;
    door->free = index;
    door->count--;
}

static void send_away(struct lm_tls_door *door, uint32_t index) {
    struct lm_tls_session *session = door->places[index].session;
    leave_place(door, index);
    lm_address_table_remove(door->addresses, session->address);
    close(session->fd);
    lm_tls_session_close(door->openssl, session);
}

/* ---- failures ---- */

static void count(struct lm_tls_door *door, lm_atomic_u64 *counter, const char *why) {
    lm_add_single_writer_u64(counter, 1);
    pthread_mutex_lock(&door->news_lock);
    snprintf(door->news, sizeof door->news, "%s", why);
    door->news_count++;
    pthread_mutex_unlock(&door->news_lock);
}

static void fail(struct lm_tls_door *door, uint32_t index, lm_atomic_u64 *counter,
                 const char *why) {
    count(door, counter, why);
    send_away(door, index);
}

static void want(struct lm_tls_door *door, uint32_t index, bool to_write) {
    struct lm_tls_handshake *place = &door->places[index];
    struct epoll_event event = {.events = to_write ? EPOLLOUT : EPOLLIN, .data.u32 = index};
    if (place->wants_to_write == to_write) return;
    place->wants_to_write = to_write;
    epoll_ctl(door->epoll_fd, EPOLL_CTL_MOD, place->session->fd, &event);
}

/* Discards what a client that was told why it may not come still sends: to close with bytes unread
 * would reset the connection, and take from it what it was told. */
static void discard(struct lm_tls_door *door, uint32_t index) {
    struct lm_tls_handshake *place = &door->places[index];
    uint8_t bytes[4096];
    ssize_t got;
    do {
        got = recv(place->session->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) place->discarded_bytes += (uint32_t)got;
    } while (got > 0 && place->discarded_bytes <= LM_TLS_GREETING_BYTES);
    if (got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        send_away(door, index);
}

/* The client has had its time. */
static void end_late(struct lm_tls_door *door, uint32_t index, const char *why) {
    if (door->places[index].is_told) {
        send_away(door, index); /* it was counted when it failed */
    } else {
        fail(door, index, &door->counters->tls_late, why);
    }
}

/* A client that was told why: it leaves by itself, as a rule at once. Without a limit of time
 * nobody waits for that. */
static void fail_told(struct lm_tls_door *door, uint32_t index, lm_atomic_u64 *counter,
                      const char *why) {
    count(door, counter, why);
    shutdown(door->places[index].session->fd, SHUT_WR);
    door->places[index].is_told = true;
    want(door, index, false);
    discard(door, index);
    if (!door->timeout_ns && door->places[index].session) send_away(door, index);
}

static void failed_by_openssl(struct lm_tls_door *door, uint32_t index) {
    struct lm_io_counters *counters = door->counters;
    const uint64_t reason = door->openssl->ERR_peek_error() & LM_ERR_REASON_MASK;
    const char *why = lm_openssl_why(door->openssl);
    char text[160];
    if (reason == 0) {
        fail(door, index, &counters->tls_left, "the client left in the middle");
        return;
    }
    if (reason >= REASON_ALERT && reason <= REASON_ALERT_LAST) {
        snprintf(text, sizeof text,
                 "the client refused (%s): does it trust the certificate's authority?", why);
        fail(door, index, &counters->tls_refused, text);
        return;
    }
    const bool is_certificate = reason == REASON_VERIFY_FAILED || reason == REASON_NO_CERTIFICATE;
    snprintf(text, sizeof text, "%s%s", is_certificate ? "the client's certificate: " : "", why);
    fail_told(door, index, is_certificate ? &counters->tls_unknown_clients : &counters->tls_failed,
              text);
}

/* Answers a client that speaks plain HTTP. */
static void answer_plainly(int fd) {
    static const char answer[] =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
        "Content-Length: 62\r\n\r\n"
        "{\"error\":\"this port speaks TLS: expected https, found http\"}\r\n";
    (void)!send(fd, answer, sizeof answer - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- one handshake ---- */

/* Hands the connection to an I/O thread, which alone uses it from here on. */
static void finish(struct lm_tls_door *door, uint32_t index) {
    struct lm_tls_session *session = door->places[index].session;
    const struct lm_openssl *openssl = door->openssl;
    X509 *certificate = openssl->SSL_get1_peer_certificate(session->ssl);
    bool is_over = false;
    if (certificate) {
        session->has_subject = lm_certificate_subject(openssl, certificate, session->subject);
        is_over = lm_certificate_is_over(openssl, certificate);
        openssl->X509_free(certificate);
    }
    if (is_over) { /* it comes back with a ticket, for which OpenSSL does not look */
        fail(door, index, &door->counters->tls_unknown_clients,
             "the client's certificate: certificate has expired");
        return;
    }
    const bool is_resumed = openssl->SSL_session_reused(session->ssl) == 1;
    const int fd = session->fd;
    session->may_read = true;
    epoll_ctl(door->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    (void)openssl->SSL_set_ex_data(session->ssl, 0, NULL); /* the tickets stay here */
    lm_add_single_writer_u64(is_resumed ? &door->counters->tls_resumed : &door->counters->tls_full,
                             1);
    lm_tls_session_put(door->sessions, fd, session);
    leave_place(door, index);
    if (door->deliver(door->owner, (uint32_t)fd)) return;
    lm_tls_session_put(door->sessions, fd, NULL);
    lm_address_table_remove(door->addresses, session->address);
    close(fd);
    lm_tls_session_close(openssl, session);
}

static void go_on(struct lm_tls_door *door, uint32_t index) {
    struct lm_tls_handshake *place = &door->places[index];
    struct lm_tls_session *session = place->session;
    if (!session) return; /* it was sent away in this turn */
    if (place->is_told) {
        discard(door, index);
        return;
    }
    if (!place->is_known) {
        uint8_t first;
        const ssize_t got = recv(session->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (got <= 0) { /* a look whether the port is open, as load balancers have it */
            send_away(door, index);
            return;
        }
        if (first != FIRST_BYTE) {
            answer_plainly(session->fd);
            fail_told(door, index, &door->counters->tls_plain, "the client does not speak TLS");
            return;
        }
        place->is_known = true;
    }
    const int done = door->openssl->SSL_do_handshake(session->ssl);
    if (done == 1) {
        finish(door, index);
        return;
    }
    const int error = door->openssl->SSL_get_error(session->ssl, done);
    const bool goes_on = error == LM_SSL_ERROR_WANT_READ || error == LM_SSL_ERROR_WANT_WRITE;
    if (!goes_on) {
        failed_by_openssl(door, index);
    } else if (session->received_bytes > LM_TLS_GREETING_BYTES) {
        fail(door, index, &door->counters->tls_failed, "the client's handshake is too long");
    } else {
        want(door, index, error == LM_SSL_ERROR_WANT_WRITE);
    }
}

/* ---- those that come ---- */

static void listen_if(struct lm_tls_door *door, bool listens) {
    struct epoll_event event = {.events = listens ? EPOLLIN : 0, .data.u32 = LM_TLS_OF_LISTENER};
    if (door->listens == listens) return;
    door->listens = listens;
    epoll_ctl(door->epoll_fd, EPOLL_CTL_MOD, door->listen_fd, &event);
}

/* A place for one more: the oldest goes, once it has had its time. */
static bool make_place(struct lm_tls_door *door, uint64_t now_ns) {
    if (door->count < LM_TLS_HANDSHAKES_MAX) return true;
    if (now_ns < door->places[door->oldest].began_ns + LM_TLS_LEAST_MS * 1000000ull) return false;
    end_late(door, door->oldest, "too many began, and this one was slow");
    return true;
}

static void greet(struct lm_tls_door *door, int fd, const struct sockaddr_storage *peer,
                  uint64_t now_ns) {
    uint32_t address = LM_NO_ADDRESS;
    const bool fits =
        fd < LM_TLS_DESCRIPTORS_MAX && (!door->addresses->bound || peer->ss_family == AF_UNIX ||
                                        lm_address_table_add(door->addresses, peer, &address));
    struct lm_tls_session *session =
        fits ? lm_tls_session_open(door->openssl, lm_tls_context_first(door->context), fd) : NULL;
    if (!session) {
        lm_add_single_writer_u64(&door->counters->tls_crowded, 1);
        lm_address_table_remove(door->addresses, address);
        close(fd);
        return;
    }
    session->address = address;
    (void)door->openssl->SSL_set_ex_data(session->ssl, 0, &door->context->tickets);
    const uint32_t index = take_place(door, session, now_ns);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
    if (epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        send_away(door, index);
        return;
    }
    go_on(door, index); /* its first bytes are here, as a rule */
}

/* Returns false where the process has no descriptor left: it waits a moment. */
static bool accept_some(struct lm_tls_door *door, uint64_t now_ns) {
    for (int n = 0; n < ACCEPTS_PER_TURN; n++) {
        struct sockaddr_storage peer = {0};
        socklen_t bytes = sizeof peer;
        if (!make_place(door, now_ns)) return false;
        const int fd = accept4(door->listen_fd, (struct sockaddr *)&peer, &bytes, SOCK_CLOEXEC);
        if (fd >= 0) {
            greet(door, fd, &peer, now_ns);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            return false;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return true;
        }
    }
    return true;
}

/* ---- certificates ---- */

/* Frees each replaced context after its last handshake. */
static void reap(struct lm_tls_door *door) {
    for (struct lm_tls_context **at = &door->context->retired; *at;) {
        struct lm_tls_context *old = *at;
        if (old->uses > 0) {
            at = &old->retired;
            continue;
        }
        *at = old->retired;
        lm_tls_context_close(old);
    }
}

static void adopt(struct lm_tls_door *door) {
    /* T2: acquire: what the context holds; pairs with T1 in tls/door.c */
    struct lm_tls_context *next =
        (struct lm_tls_context *)(uintptr_t)lm_exchange_acq_rel_u64(&door->offered, 0);
    if (next) {
        next->retired = door->context;
        door->context = next;
    }
    if (door->context->retired) reap(door);
}

/* ---- the thread ---- */

/* How long it may sleep: until the oldest handshake is late, or may make room. */
static int sleep_ms(const struct lm_tls_door *door, uint64_t now_ns) {
    if (!door->listens) return PAUSE_MS;
    if (door->count == 0 || !door->timeout_ns) return -1;
    const uint64_t until_ns = door->places[door->oldest].began_ns + door->timeout_ns;
    return until_ns > now_ns ? (int)((until_ns - now_ns) / 1000000) + 1 : 0;
}

static void end_all_late(struct lm_tls_door *door, uint64_t now_ns) {
    while (door->count > 0 && door->timeout_ns &&
           door->places[door->oldest].began_ns + door->timeout_ns <= now_ns)
        end_late(door, door->oldest, "the client was too slow");
}

static void *greet_clients(void *argument) {
    struct lm_tls_door *door = argument;
    struct epoll_event events[EVENTS];
    pthread_setname_np(pthread_self(), "lumen-tls");
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    uint64_t now_ns = lm_now_ns();
    /* relaxed: says nothing of other memory */
    while (!lm_load_relaxed_u32(&door->stopping)) {
        const int count = epoll_wait(door->epoll_fd, events, EVENTS, sleep_ms(door, now_ns));
        now_ns = lm_now_ns();
        bool may_listen = true;
        adopt(door);
        lm_tls_tickets_turn(&door->context->tickets, now_ns);
        for (int e = 0; e < count; e++) {
            const uint32_t of = events[e].data.u32;
            uint64_t rung;
            if (of == LM_TLS_OF_LISTENER) may_listen = accept_some(door, now_ns);
            if (of == LM_TLS_OF_CONTROL) (void)!read(door->event_fd, &rung, sizeof rung);
            if (of < LM_TLS_HANDSHAKES_MAX) go_on(door, of);
        }
        end_all_late(door, now_ns);
        listen_if(door, may_listen);
    }
    close(door->listen_fd);
    door->listen_fd = -1;
    while (door->count > 0) send_away(door, door->oldest);
    return NULL;
}

int lm_tls_handshakes_start(struct lm_tls_door *door) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = LM_TLS_OF_LISTENER};
    sigset_t all, before;
    door->listens = true;
    /* A client that left before it was accepted must not be waited for. */
    const int flags = fcntl(door->listen_fd, F_GETFL);
    if (flags < 0 || fcntl(door->listen_fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, door->listen_fd, &event) != 0)
        return lm_error_errno(LUMEN_E_IO, errno, "server.tls: cannot wait for clients");
    event.data.u32 = LM_TLS_OF_CONTROL;
    epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, door->event_fd, &event);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int refused = pthread_create(&door->thread, NULL, greet_clients, door);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (refused) return lm_error_errno(LUMEN_E_NOMEM, refused, "cannot start a thread");
    door->thread_started = true;
    return 0;
}
