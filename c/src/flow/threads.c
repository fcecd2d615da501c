/* threads.c: see threads.h. */
#include "flow/threads.h"

#include <pthread.h>

#include "flow/accept.h"
#include "wire/http_date.h"

void lm_thread_meet(struct lm_shared *shared) {
    (void)lm_http_date_line();             /* its memory of this thread is taken now */
    pthread_mutex_lock(&shared->spawning); /* until it is known how many there are to meet */
    pthread_mutex_unlock(&shared->spawning);
    pthread_barrier_wait(&shared->started);
    pthread_barrier_wait(&shared->go); /* everyone is up, or everyone goes home */
}

void lm_thread_ended(struct lm_shared *shared, uint32_t role) {
    lm_atomic_u64 *running =
        role == LUMEN_ROLE_IO ? &shared->ios_running : &shared->workers_running;
    /* F1: acq_rel: the last one sees what the others did, and shows it to lumen_wait; pairs with F2
     * in server/server.c and F1 */
    if (lm_sub_acq_rel_u64(running, 1) != 1 || role != LUMEN_ROLE_IO) return;
    for (uint32_t i = 0; i < shared->io_count; i++) lm_accept_refuse_assigned(&shared->ios[i]);
    /* E1: release: a worker that ends sees every push; pairs with E3 in work/jobs.c */
    lm_store_release_u32(&shared->workers_stop, 1);
    for (uint32_t n = 0; n < shared->node_count; n++) {
        struct lm_node *node = &shared->nodes[n];
        lm_waitset_wake_all(&node->waitset);
        lm_waitset_wake_all(&node->spare);
        lm_queue_stop(&lm_node_line(node)->queue);
    }
    lm_waitset_wake_all(&shared->bulk.waitset);
    lm_waitset_wake_all(&shared->shadows.waitset);
}
