/* calls.c: the system calls of the sources under test that are not the network's or the ring's:
 * clock, futex, condition variables, and what needs no simulation. In each of them another thread
 * may get a turn.
 */
#include <errno.h>
#include <linux/futex.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "base/topology.h"
#include "sim.h"

struct sim_limits sim_limits;

static void maybe_switch(void) {
    if (fiber_self() && sim_one_in(sim_plan.switch_one_in)) fiber_yield();
}

uint64_t sim_lost_ns[FIBERS_MAX];

/* A thread's own time goes on like all others', but for what the rules take from it. */
int sim_clock_gettime(clockid_t clock, struct timespec *now_out) {
    sim_now_ns += 25;
    maybe_switch();
    bool own = clock == CLOCK_THREAD_CPUTIME_ID && fiber_self();
    uint64_t now_ns = sim_now_ns - (own ? sim_lost_ns[fiber_self() - fibers] : 0);
    *now_out =
        (struct timespec){.tv_sec = (time_t)(now_ns / SIM_S), .tv_nsec = (long)(now_ns % SIM_S)};
    return 0;
}

static uint64_t as_ns(const struct timespec *at) {
    return (uint64_t)at->tv_sec * SIM_S + (uint64_t)at->tv_nsec;
}

long sim_syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    if (number != SYS_futex) { /* gettid */
        va_end(arguments);
        return 1;
    }
    const uint32_t *word = va_arg(arguments, const uint32_t *);
    int operation = va_arg(arguments, int) & ~FUTEX_PRIVATE_FLAG;
    uint32_t value = va_arg(arguments, uint32_t);
    const struct timespec *until = va_arg(arguments, const struct timespec *);
    va_end(arguments);
    maybe_switch();
    if (operation == FUTEX_WAKE) return fiber_unblock(word, value);
    bool stale = __atomic_load_n(word, __ATOMIC_RELAXED) != value;
    if (stale || sim_one_in(sim_plan.blip_one_in)) {
        errno = stale ? EAGAIN : EINTR;
        return -1;
    }
    if (fiber_block(word, until ? as_ns(until) : UINT64_MAX)) return 0;
    errno = ETIMEDOUT;
    return -1;
}

int sim_clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                        struct timespec *left_out) {
    (void)clock;
    (void)left_out;
    SIM_CHECK(flags == 0, "an absolute sleep is not simulated");
    fiber_block(time, sim_now_ns + as_ns(time));
    return 0;
}

int sim_sched_yield(void) {
    sim_now_ns += 300;
    fiber_block(&sim_now_ns, sim_now_ns + 2000); /* others go on, time too */
    return 0;
}

void sim_cpu_relax(void) {
    sim_now_ns += 30;
    maybe_switch();
}

int sim_setname(pthread_t thread, const char *name) {
    (void)thread;
    (void)name;
    return 0;
}

int sim_mutex_lock(pthread_mutex_t *mutex) {
    while (pthread_mutex_trylock(mutex) != 0) fiber_block(mutex, sim_now_ns + SIM_US);
    return 0;
}

/* I/O threads and workers meet; the control thread is not simulated. */
int sim_barrier_wait(pthread_barrier_t *barrier) {
    static uint32_t arrived; /* one barrier at a time: a fiber passes it when all have reached it */
    if (++arrived < sim_shared.io_count + sim_shared.thread_count) {
        fiber_block(barrier, UINT64_MAX);
        return 0;
    }
    arrived = 0;
    fiber_unblock(barrier, UINT32_MAX);
    return PTHREAD_BARRIER_SERIAL_THREAD;
}

int sim_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    pthread_mutex_unlock(mutex);
    fiber_block(condition, UINT64_MAX);
    return sim_mutex_lock(mutex);
}

int sim_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                       const struct timespec *until) {
    pthread_mutex_unlock(mutex);
    bool woken = fiber_block(condition, as_ns(until));
    sim_mutex_lock(mutex);
    return woken ? 0 : ETIMEDOUT;
}

int sim_cond_signal(pthread_cond_t *condition) {
    fiber_unblock(condition, 1);
    return 0;
}

int sim_cond_broadcast(pthread_cond_t *condition) {
    fiber_unblock(condition, UINT32_MAX);
    return 0;
}

/* A queue refuses a push while a worker stands in the middle of a pop, for which its own code has
 * no pause here. The linker puts these names in. */
bool __real_lm_queue_push(struct lm_queue *queue, uint32_t value);
bool __wrap_lm_queue_push(struct lm_queue *queue, uint32_t value);

bool __wrap_lm_queue_push(struct lm_queue *queue, uint32_t value) {
    return !sim_one_in(sim_plan.full_one_in) && __real_lm_queue_push(queue, value);
}

int lm_thread_pin(int32_t cpu) {
    (void)cpu;
    return 0;
}

int lm_thread_cpus(struct lm_cpu_set *cpus_out) {
    (void)cpus_out;
    return -1;
}

int lm_thread_keep_to(const struct lm_cpu_set *cpus) {
    (void)cpus;
    return 0;
}

void lm_thread_give_way(void) {
}

int32_t sim_helper_cpus[SIM_HELPERS];

int lm_thread_pin_other(int32_t tid, int32_t cpu) {
    if (fiber_self()) fiber_yield();
    SIM_CHECK(tid >= 0 && tid < SIM_HELPERS && cpu >= 0, "no helper has the number %d", tid);
    sim_helper_cpus[tid] = cpu;
    if (fiber_self()) fiber_yield();
    return 0;
}

/* ---- sockets ---- */

static struct peer *open_peer(int fd, const char *call) {
    struct peer *peer = peer_of(fd);
    SIM_CHECK(peer, "%s on descriptor %d, which is closed", call, fd);
    return peer;
}

ssize_t sim_sendmsg(int fd, const struct msghdr *message, int flags) {
    SIM_CHECK(flags & MSG_NOSIGNAL, "sendmsg without MSG_NOSIGNAL: SIGPIPE ends the process");
    SIM_CHECK(flags & MSG_DONTWAIT, "sendmsg may wait");
    maybe_switch();
    struct peer *peer = open_peer(fd, "sendmsg");
    check_sent(message);
    uint32_t most = UINT32_MAX;
    if (sim_one_in(sim_plan.fatal_one_in)) peer_break(peer, sim_below(2) ? ECONNRESET : ETIMEDOUT);
    if (sim_one_in(sim_plan.blip_one_in)) {
        static const int errors[] = {EINTR, EAGAIN, ENOBUFS};
        uint32_t which = sim_below(4);
        if (which < 3) {
            errno = errors[which];
            return -1;
        }
        most = 1 + sim_below(60);
    }
    int sent = peer_send(peer, message->msg_iov, message->msg_iovlen, 0, most);
    SIM_TRACE("sendmsg fd %llu: %lld", fd, (int64_t)sent);
    maybe_switch();
    if (sent >= 0) return sent;
    errno = -sent;
    return -1;
}

int sim_shutdown(int fd, int how) {
    struct peer *peer = open_peer(fd, "shutdown");
    if (engine_ended_one(peer->io)) peer->excused = true;
    SIM_TRACE("shutdown fd %llu how %llu", fd, how);
    if (how != SHUT_WR) peer->shut_rd = true;
    if (how != SHUT_RD) peer->shut_wr = true;
    maybe_switch();
    return 0;
}

int sim_getpeername(int fd, struct sockaddr *address, socklen_t *bytes) {
    struct peer *peer = open_peer(fd, "getpeername");
    if (peer->reset) {
        errno = ENOTCONN;
        return -1;
    }
    if (sim_plan.plain && peer->number % 2) {
        *(struct sockaddr_in6 *)(void *)address = (struct sockaddr_in6){
            .sin6_family = AF_INET6,
            .sin6_port = htons((uint16_t)(6000 + peer->number)),
            .sin6_addr.s6_addr = {0x20, 1, 0xd, 0xb8, 0, 0, 0, (uint8_t)peer->number, [15] = 9}};
        *bytes = sizeof(struct sockaddr_in6);
        return 0;
    }
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)address;
    uint32_t host = sim_plan.plain ? 0 : peer->number % 3;
    *v4 = (struct sockaddr_in){.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)(4000 + peer->number)),
                               .sin_addr.s_addr = htonl(0x7f000001 + host)};
    *bytes = sizeof *v4;
    return 0;
}

int sim_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes) {
    struct peer *peer = open_peer(fd, "setsockopt");
    if (level != SOL_SOCKET || name != SO_RCVLOWAT) return 0;
    SIM_CHECK(bytes == sizeof(int) && *(const int *)value > 0, "a low mark of nothing");
    peer->low_mark = (uint32_t)*(const int *)value;
    return 0;
}

int sim_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes) {
    struct peer *peer = open_peer(fd, "getsockopt");
    SIM_CHECK(level == IPPROTO_TCP && name == TCP_INFO, "an unknown option");
    if (sim_one_in(sim_plan.fatal_one_in)) {
        errno = EOPNOTSUPP; /* as on a Unix socket */
        return -1;
    }
    struct tcp_info info = {.tcpi_state = peer->reset ? 7 : 1, /* closed, established */
                            .tcpi_bytes_received = peer->server_read + peer->to_server.count,
                            .tcpi_bytes_acked = peer->client_read};
    memcpy(value, &info, *bytes < sizeof info ? *bytes : sizeof info);
    return 0;
}

int sim_ioctl(int fd, unsigned long request, int *value_out) {
    struct peer *peer = open_peer(fd, "ioctl");
    SIM_CHECK(request == FIONREAD, "an unknown ioctl");
    *value_out = (int)peer->to_server.count;
    return 0;
}
