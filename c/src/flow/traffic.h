/* traffic.h: the version of a model that answers a request which names none. I/O thread only. */
#ifndef LM_FLOW_TRAFFIC_H
#define LM_FLOW_TRAFFIC_H

#include "flow/state.h"

/* The model itself, or another version of it in the set, as the settings' weights say. `session`:
 * of lm_traffic_session. */
const struct lm_model *lm_traffic_choose(struct lm_io *io, const struct lm_model_set *set,
                                         const struct lm_model *model, uint16_t session);

#endif
