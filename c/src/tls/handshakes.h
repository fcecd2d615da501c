/* handshakes.h: the thread of a door (door.h). Control thread. */
#ifndef LM_TLS_HANDSHAKES_H
#define LM_TLS_HANDSHAKES_H

#include "tls/door.h"

/* Starts the thread, which accepts clients, carries out their handshakes and gives each to an I/O
 * thread, until the door is stopped; once everything in the door is filled in. Returns 0 or
 * LUMEN_E_*. */
int lm_tls_handshakes_start(struct lm_tls_door *door);

#endif
