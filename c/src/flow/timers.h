/* timers.h: how long a connection may take for something, and what happens when it takes longer.
 * I/O thread only.
 *
 * Each connection has one deadline at a time, from what it is doing: a header or a body that
 * arrives, a reply that is read, or nothing. Setting it is a store of four bytes beside the table;
 * a few times a second all deadlines are read in order, which for 100,000 connections is 400 KB.
 * Connections that linger, or hold what others wait for, have clocks of their own.
 */
#ifndef LM_FLOW_TIMERS_H
#define LM_FLOW_TIMERS_H

#include "flow/state.h"

/* Sets the connection's deadline from what it is doing. For lm_advance_all. */
void lm_timer_update(struct lm_io *io, const struct lm_connection *connection);
/* Ends connections whose deadline has passed, that lingered, or whose client has reset them. */
void lm_timers_expire(struct lm_io *io);

/* For dialects: when so many bytes of a body must have come; 0: never. */
uint64_t lm_timer_body_ns(const struct lm_io *io, uint64_t since_ns, uint64_t bytes);
/* `timeout_ns` 0: never, which is 0 too. */
uint64_t lm_timer_after(uint64_t since_ns, uint64_t timeout_ns);

#endif
