/* parking.h: where the process may have fewer descriptors than connections, connections that have
 * been idle the longest have none (ring/fd_store.h): the ring goes on receiving for them. When
 * bytes come, the connection gets a descriptor again. I/O thread only.
 */
#ifndef LM_FLOW_PARKING_H
#define LM_FLOW_PARKING_H

#include "flow/state.h"

/* Between two requests, with a receive armed: belongs on LM_LIST_IDLE. */
bool lm_parking_may_park(const struct lm_io *io, const struct lm_connection *connection);
bool lm_parking_is_due(const struct lm_io *io);
/* Parks as many idle connections as there are too many. Called when what was started is with the
 * kernel. */
void lm_parking_park(struct lm_io *io);
/* For a parked one. false: no descriptor is free for it. */
bool lm_parking_unpark(struct lm_io *io, struct lm_connection *connection);

/* Connections that have a place to be parked in: the first so many entries. One that found a stream
 * in its place keeps its descriptor. */
static inline uint32_t lm_parking_places(const struct lm_io *io) {
    return io->connection_capacity - LM_STREAMS_MAX - io->dialed_max;
}

#endif
