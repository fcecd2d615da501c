/* http_answer.h: an answer of the I/O thread itself over HTTP. I/O thread only. */
#ifndef LM_DIALECTS_HTTP_ANSWER_H
#define LM_DIALECTS_HTTP_ANSWER_H

#include "flow/state.h"

struct lm_http_answer {
    uint32_t code;
    const char *type;    /* NULL: application/json */
    const char *headers; /* whole lines, or NULL */
    const char *body;
    size_t body_bytes;
    bool body_is_shared; /* lives as long as the server */
    const char *why;     /* for the access log; NULL: nothing went wrong */
};
void lm_http_answer(struct lm_io *io, struct lm_connection *connection,
                    const struct lm_http_answer *answer);
/* {"error": why} */
void lm_http_answer_error(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                          const char *headers, const char *why);

#endif
