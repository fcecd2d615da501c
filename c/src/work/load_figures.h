/* load_figures.h: how loaded this server is, for the answers that say it (server.orca), the metrics
 * page and HAProxy's agent checks. Any thread that serves, and the control thread with its lock.
 */
#ifndef LM_WORK_LOAD_FIGURES_H
#define LM_WORK_LOAD_FIGURES_H

#include "flow/state.h"

/* The figures of about the last quarter of a second. A server that is about to end says that it is
 * full ten times over, so that balancers weigh it least. */
void lm_load_look(struct lm_shared *shared, uint64_t now_ns, struct lm_load_figures *figures_out);
/* The line of an answer's head; "": its client has not asked for it, where it must (enum
 * lm_load_form). Good until this thread asks again. */
const char *lm_load_line(struct lm_shared *shared, uint8_t form, uint64_t now_ns);
/* The field of gRPC's trailers. Returns its bytes; 0: answers do not have it unasked. */
size_t lm_load_field(struct lm_shared *shared, uint64_t now_ns, uint8_t field[LM_LOAD_FIELD_BYTES]);

#endif
