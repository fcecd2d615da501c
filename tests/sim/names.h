/* names.h: included before each C source under test. The system's and our own declarations come
 * first, so that only the calls are renamed.
 */
#define lm_cpu_relax real_cpu_relax
#include "base/atomics.h"
#undef lm_cpu_relax

#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "sim_calls.h"

#define lm_cpu_relax sim_cpu_relax
#define clock_gettime sim_clock_gettime
#define syscall sim_syscall
#define sched_yield sim_sched_yield
#define clock_nanosleep sim_clock_nanosleep
#define pthread_setname_np sim_setname
#define pthread_mutex_lock sim_mutex_lock
#define pthread_barrier_wait sim_barrier_wait
#define pthread_cond_wait sim_cond_wait
#define pthread_cond_timedwait sim_cond_timedwait
#define pthread_cond_signal sim_cond_signal
#define pthread_cond_broadcast sim_cond_broadcast
#define sendmsg sim_sendmsg
#define shutdown(fd, how) sim_shutdown(fd, how)
#define close(fd) sim_close(fd)
#define getpeername sim_getpeername
#define setsockopt sim_setsockopt
#define getsockopt sim_getsockopt
#define ioctl sim_ioctl

#define LM_HTTP_BLOCKS (sim_limits.http_blocks)
#define LM_PIPELINE_MAX (sim_limits.pipeline_max)
#define LM_SLOT_WAITERS_MAX (sim_limits.slot_waiters_max)
#define LM_UNPARKING_MAX (sim_limits.unparking_max)
#define LM_LINGER_BYTES_MAX (sim_limits.linger_bytes_max)
#define LM_PARSES_PER_TURN (sim_limits.parses_per_turn)
#define LM_EXPIRIES_PER_TURN (sim_limits.expiries_per_turn)
#define LM_SPIN_PAUSES (sim_limits.spin_pauses)
#define LM_HERE_BYTES (sim_limits.here_bytes)
