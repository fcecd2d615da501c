/* real_io.c: io.c, with its static functions reachable; see real_worker.c. */
#include "io.c"
#include "real.h"

void real_look(struct lm_io *io) {
    lm_io_look(io);
}
void real_take_returns(struct lm_io *io) {
    take_returns(io);
}
void real_drain(struct lm_shared *shared) { /* as server/server.c */
    lm_store_release_u32(&shared->phase, LM_PHASE_DRAINING);
}
int real_wait_for_work(struct lm_io *io, struct lm_completion *completions) {
    return wait_for_work(io, completions);
}
