/* http_texts.h: which model a request of texts is for: its body names one, and a path is for all of
 * its kind (formats/texts_request.h). I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP_TEXTS_H
#define LM_DIALECTS_HTTP_TEXTS_H

#include "flow/state.h"
#include "formats/openai_request.h"

static inline void lm_http_take_model(struct lm_connection *connection,
                                      const struct lm_model *model) {
    connection->in.call.model = (uint16_t)model->index;
    connection->in.call.signature = model->signature;
}

/* The head is read: until the body says more, the request is for the first model that its path is
 * for. false: there is none, and it is refused. */
bool lm_http_texts_begin(struct lm_io *io, struct lm_connection *connection);
/* The body is here: the request is for the model that it names, and `asked` tells where, if that is
 * an upstream's. false: there is none, or its client may not use it now, and the request is
 * refused. */
bool lm_http_texts_received(struct lm_io *io, struct lm_connection *connection,
                            struct lm_request *request, struct lm_openai_request *asked);
/* A model of this server that takes texts: what they may cost is taken of budgets. false: there is
 * too little, and the request is refused. */
bool lm_http_texts_reserve(struct lm_io *io, struct lm_connection *connection,
                           struct lm_request *request);

#endif
