/* test_accept.c: a listener whose accept fails rests, and the others go on. The ring's call is the
 * test's own, so that it sees which listener is armed and when.
 */
#include <errno.h>

#include "check.h"
#include "flow/accept.h"

static uint32_t armed[LM_LISTENERS]; /* how often */

static void arm(struct lm_ring *ring, uint32_t listener, int listen_fd) {
    (void)ring;
    CHECK(listen_fd == 100 + (int)listener);
    armed[listener]++;
}

/* The file itself, which calls this. */
#define lm_ring_accept arm
#include "flow/accept.c"

static struct lm_io thread = {.now_ns = 1000000000};

static void fails(uint32_t listener, int error) {
    struct lm_completion failed = {.op = LM_OP_ACCEPT, .index = listener, .result = -error};
    lm_accept_completed(&thread, &failed);
}

static void are_armed(uint32_t tcp, uint32_t from_unix) {
    CHECK(armed[LM_LISTENER_TCP] == tcp && armed[LM_LISTENER_UNIX] == from_unix);
}

int main(void) {
    for (uint32_t l = 0; l < LM_LISTENERS; l++) thread.listen_fds[l] = 100 + (int)l;
    thread.listen_fds[LM_LISTENER_GRPC] = -1; /* there is none */
    lm_accept_arm(&thread);
    are_armed(1, 1);
    lm_accept_arm(&thread);
    are_armed(1, 1); /* both are, and no listener twice */
    fails(LM_LISTENER_TCP, EMFILE);
    CHECK(thread.accepts_armed == 1u << LM_LISTENER_UNIX);
    thread.now_ns += LM_ACCEPT_PAUSE_MS * 1000000ull - 1;
    lm_accept_arm(&thread);
    are_armed(1, 1); /* it rests */
    thread.now_ns++;
    lm_accept_arm(&thread);
    are_armed(2, 1); /* the other one accepts all the time */
    fails(LM_LISTENER_UNIX, ENFILE);
    CHECK(thread.accepts_armed == 1u << LM_LISTENER_TCP && thread.accept_retry_ns > thread.now_ns);
    fails(LM_LISTENER_TCP, ENOMEM); /* now neither does */
    CHECK(thread.accepts_armed == 0);
    thread.now_ns = thread.accept_retry_ns;
    lm_accept_arm(&thread);
    are_armed(3, 2);
    fails(LM_LISTENER_UNIX, ECONNABORTED); /* its client's fault: no reason to rest */
    are_armed(3, 3);
    fails(LM_LISTENER_TCP, EINTR);
    are_armed(4, 3);
    thread.listen_fds[LM_LISTENER_TCP] = -1;
    fails(LM_LISTENER_TCP, ECANCELED); /* closed: it is not armed again */
    are_armed(4, 3);
    thread.draining = true;
    fails(LM_LISTENER_UNIX, ECANCELED);
    are_armed(4, 3);
    CHECK(thread.accepts_armed == 0);
    return check_finish("test_accept");
}
