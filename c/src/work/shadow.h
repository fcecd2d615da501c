/* shadow.h: the thread that runs copies of requests on another version of their model, and compares
 * the answers with those that clients got (flow/shadow.h). There is one for the whole server, from
 * the first rule of `traffic` on that asks for it.
 */
#ifndef LM_WORK_SHADOW_H
#define LM_WORK_SHADOW_H

#include "flow/state.h"

void *lm_shadow_main(void *shared);

#endif
