/* texts_reply.h: the replies to requests of texts, each in its client's form (texts_request.h).
 * Composed by a worker in memory that the caller gives. No state, no allocation.
 */
#ifndef LM_FORMATS_TEXTS_REPLY_H
#define LM_FORMATS_TEXTS_REPLY_H

#include "formats/texts_answer.h"

/* Upper bounds of what lm_texts_reply needs, in text and scratch memory. The outputs' `data` is not
 * looked at. False when one overflows. */
bool lm_texts_reply_bytes_max(const struct lm_texts_answer *answer, size_t *json_bytes_out,
                              size_t *scratch_bytes_out);

/* Composes the reply. Returns as lm_oip_write. */
enum lm_status lm_texts_reply(const struct lm_texts_answer *answer, const struct lm_oip_room *room,
                              size_t *bytes_out, char *why, size_t why_bytes);

#endif
