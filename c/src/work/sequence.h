/* sequence.h: the turn of a request in its sequence (models/sequences.h). The thread that runs it.
 */
#ifndef LM_WORK_SEQUENCE_H
#define LM_WORK_SEQUENCE_H

#include "flow/request.h"

/* Takes the sequence that the request names, if its model has any. Returns LM_STATUS_OK, or a
 * status with a sentence in lm_error_last. */
enum lm_status lm_sequence_begin(struct lm_request *request, uint64_t now_ns);
/* After OK. `answered`: there is an answer of its Run; the state goes on with it if the client has
 * not left. */
void lm_sequence_end(struct lm_request *request, bool answered, uint64_t now_ns);

#endif
