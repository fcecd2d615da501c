/* world_names.h: included before each source under test; its waiting calls go to world.c. The
 * system's own declarations come first, so that only the calls are renamed.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

#define syscall model_syscall
#define clock_gettime model_clock_gettime
#define pthread_mutex_lock model_mutex_lock
#define pthread_mutex_unlock model_mutex_unlock
#define pthread_cond_wait model_cond_wait
#define pthread_cond_timedwait model_cond_timedwait
#define pthread_cond_signal model_cond_signal
#define pthread_cond_broadcast model_cond_broadcast
#define sendmsg model_sendmsg
