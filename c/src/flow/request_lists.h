/* request_lists.h: memory for the lists of all requests (flow/request.h), as long as the models of
 * a set need them. Sets of models that need no longer ones share it. A slot's lists change places
 * when it is taken under a set with others. Control thread, but for lm_request_lists_give.
 */
#ifndef LM_FLOW_REQUEST_LISTS_H
#define LM_FLOW_REQUEST_LISTS_H

#include "flow/state.h"

struct lm_request_lists {
    uint32_t inputs, outputs; /* of a model, at most */
    uint32_t sets;            /* that use it */
    uint32_t number;          /* no other has it, from 1 on */
    size_t bytes;             /* of one request */
    uint8_t *memory[LUMEN_IO_THREADS_MAX];
};

/* For the models of `set`, which keeps it: that of `before`, where it is long enough; NULL: none is
 * there. Returns 0 or LUMEN_E_NOMEM. */
int lm_request_lists_open(struct lm_model_set *set, const struct lm_model_set *before);
/* The part of an I/O thread, whose arena is open; what it has already it keeps. */
int lm_request_lists_hold(struct lm_request_lists *lists, const struct lm_io *io);
/* The set goes; NULL is allowed. */
void lm_request_lists_close(struct lm_request_lists *lists);
/* I/O thread, which has just taken the slot. */
void lm_request_lists_give(const struct lm_request_lists *lists, const struct lm_io *io,
                           struct lm_request *request);

#endif
