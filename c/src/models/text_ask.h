/* text_ask.h: what a request may ask of a model of texts (text_model.h), beside its texts. Plain
 * data, of the thread that has the request.
 */
#ifndef LM_MODELS_TEXT_ASK_H
#define LM_MODELS_TEXT_ASK_H

#include <stdbool.h>
#include <stdint.h>

/* A text that is too long: as the model is set, cut, or refused. */
enum { LM_TEXT_AS_SET, LM_TEXT_CUT, LM_TEXT_REFUSE };

/* All zeros: as the model is set. */
struct lm_text_ask {
    uint16_t prompt;     /* 1 + its number; 0: the model's default, if it has one */
    uint8_t cut;         /* LM_TEXT_* */
    uint8_t aggregation; /* 1 + LUMEN_AGGREGATE_*; 0: as the model is set */
    bool cuts_start;     /* a text that is cut loses its start, not its end */
    bool raw;            /* scores as the graph has them */
    bool all_tokens;     /* the vectors of all tokens, as the graph has them */
    bool runs_nothing;   /* the reply follows from the texts alone */
};

#endif
