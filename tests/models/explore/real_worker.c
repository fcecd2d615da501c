/* real_worker.c: worker.c, with its static functions reachable. What it calls and no scenario needs
 * is dropped by the linker. */
#include "real.h"
#include "work/worker.c"

void real_give_back(struct lm_io *io, uint32_t slot) {
    give_back(io, slot);
}
