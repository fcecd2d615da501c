/* greeting.h: the dialect of a connection whose first four bytes are not all here: the native
 * protocol begins with LMN1, everything else is HTTP. I/O thread only.
 */
#ifndef LM_DIALECTS_GREETING_H
#define LM_DIALECTS_GREETING_H

#include "flow/state.h"

extern const struct lm_dialect lm_greeting;

#endif
