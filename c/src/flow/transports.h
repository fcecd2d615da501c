/* transports.h: the table of transports: TCP and unix sockets, connections that carry streams, and
 * TLS. Threads: see transport.h, through which it is called.
 */
#ifndef LM_FLOW_TRANSPORTS_H
#define LM_FLOW_TRANSPORTS_H

#include "flow/transport.h"

extern const struct lm_transport lm_transports[LM_TRANSPORT_COUNT];

#endif
