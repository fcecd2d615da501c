/* texts_answer.h: what a worker has when it composes the reply to a request of texts
 * (texts_reply.h). Plain data.
 */
#ifndef LM_FORMATS_TEXTS_ANSWER_H
#define LM_FORMATS_TEXTS_ANSWER_H

#include "formats/oip_reply.h"
#include "formats/texts_request.h"

/* An answer of a model of texts, before it is written as its client wants it. */
struct lm_texts_answer {
    const struct lm_model *model;
    const struct lm_texts_wish *wish;
    uint8_t route; /* enum lm_http_route */
    uint32_t rows; /* of the request */
    const struct lm_oip_output *outputs;
    const void *texts; /* as on the wire, those that were scored; NULL: not known */
    size_t text_bytes; /* of all of them */
};

#endif
