/* rest.h: when an I/O thread rests before it looks for more. It has two reasons.
 *
 * The workers have enough to do: what arrives meanwhile would only wait in the queue, and looking
 * at each arrival costs a wake-up, and on a shared core the worker's place as well. The I/O thread
 * rests until the workers have taken most of what is queued, or for LM_REST_NS; then one turn
 * serves all that has come. It rests only while the workers take less than that for a request.
 *
 * It turned requests away, and shares its core with the workers: see make_room.
 */
#ifndef LM_FLOW_REST_H
#define LM_FLOW_REST_H

#include "flow/state.h"

/* I/O thread, at the end of a turn that began at `woke_ns`. */
void lm_rest(struct lm_io *io, uint64_t woke_ns);

/* Worker that has taken a job of the node's line: wakes the I/O threads that rest, when few jobs
 * are left. */
void lm_rest_end(struct lm_node *node, struct lm_line *line);

#endif
