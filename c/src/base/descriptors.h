/* descriptors.h: how many descriptors this process may have open. Each connection is one. Control
 * thread, at start. */
#ifndef LM_BASE_DESCRIPTORS_H
#define LM_BASE_DESCRIPTORS_H

#include <stdint.h>

/* Raises the soft limit to `wanted`, or to the hard limit where that is lower; lowers it never.
 * Returns what is allowed now. */
uint64_t lm_descriptors_allow(uint64_t wanted);

#endif
