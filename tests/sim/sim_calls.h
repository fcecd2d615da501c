/* sim_calls.h: what the sources under test call in place of the system: calls.c. Their calls are
 * renamed by names.h; limits that are small in the simulation are variables, drawn by the seed.
 */
#ifndef TESTS_SIM_CALLS_H
#define TESTS_SIM_CALLS_H

#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

struct sim_limits {
    uint32_t http_blocks;
    uint32_t pipeline_max;
    uint32_t slot_waiters_max;
    uint32_t unparking_max;
    uint32_t linger_bytes_max;
    uint32_t expiries_per_turn;
    uint32_t parses_per_turn;
    uint32_t spin_pauses;
    uint32_t here_bytes;
};
extern struct sim_limits sim_limits;

int sim_clock_gettime(clockid_t clock, struct timespec *now_out);
int sim_clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                        struct timespec *left_out);
long sim_syscall(long number, ...);
int sim_sched_yield(void);
void sim_cpu_relax(void);
int sim_setname(pthread_t thread, const char *name);
int sim_mutex_lock(pthread_mutex_t *mutex);
int sim_barrier_wait(pthread_barrier_t *barrier);
int sim_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int sim_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                       const struct timespec *until);
int sim_cond_signal(pthread_cond_t *condition);
int sim_cond_broadcast(pthread_cond_t *condition);

ssize_t sim_sendmsg(int fd, const struct msghdr *message, int flags);
int sim_shutdown(int fd, int how);
int sim_close(int fd);
int sim_getpeername(int fd, struct sockaddr *address, socklen_t *bytes);
int sim_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes);
int sim_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int sim_ioctl(int fd, unsigned long request, int *value_out);

#endif
