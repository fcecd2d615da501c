/* handshakes.h: the thread of a door (door.h). */
#ifndef LM_TLS_HANDSHAKES_H
#define LM_TLS_HANDSHAKES_H

#include "tls/door.h"

/* For pthread_create: accepts clients, carries out their handshakes, and gives each to an I/O
 * thread, until the door is stopped. */
void *lm_tls_greet_clients(void *door);

#endif
