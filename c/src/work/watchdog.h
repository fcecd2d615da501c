/* watchdog.h: workers that do not come back: their requests are answered in their place, and the
 * server says that it is not ready. I/O thread only.
 */
#ifndef LM_WORK_WATCHDOG_H
#define LM_WORK_WATCHDOG_H

#include "flow/state.h"

/* A few times a second. */
void lm_watchdog_run(struct lm_io *io);

#endif
