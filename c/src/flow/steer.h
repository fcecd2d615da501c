/* steer.h: connections go to the node whose core received them. Control thread, at start. */
#ifndef LM_FLOW_STEER_H
#define LM_FLOW_STEER_H

#include "flow/state.h"
#include "parts/placement.h"

/* Once all I/O threads have their TCP listeners: gives the kernel a program that chooses one of
 * them for each connection, among those of the node that the receiving core belongs to. `nodes` are
 * those of the plan. Returns 0 or the errno of the refusal. */
int lm_steer_listeners(const struct lm_shared *shared, const struct lm_placement_node *nodes);

#endif
