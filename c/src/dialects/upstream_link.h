/* upstream_link.h: an I/O thread's table of links: entries are taken and given back. I/O thread
 * only.
 */
#ifndef LM_DIALECTS_UPSTREAM_LINK_H
#define LM_DIALECTS_UPSTREAM_LINK_H

#include "dialects/upstream_state.h"

/* An entry without a request; NULL: all are taken. It counts as busy. */
struct lm_link *lm_link_take(struct lm_io *io);
/* It is free again. */
void lm_link_give(struct lm_io *io, struct lm_link *link);

#endif
