/* texts_wish.h: how a client wants the reply to a request of texts (texts_request.h). Plain data,
 * of the thread that has the request.
 */
#ifndef LM_FORMATS_TEXTS_WISH_H
#define LM_FORMATS_TEXTS_WISH_H

#include "models/text_ask.h"

/* Whether others go before it: as many texts do, as the client says, or always, by its key. */
enum lm_texts_turn { LM_TURN_BY_NUMBER, LM_TURN_FIRST, LM_TURN_BULK, LM_TURN_BOUND };

struct lm_texts_wish {
    struct lm_text_ask ask; /* of the model */
    uint32_t dimensions;    /* the first so many numbers of an embedding; 0: all */
    uint32_t top;           /* so many results; 0: all */
    bool as_base64;         /* embeddings as bytes */
    bool normalises;        /* whatever the model does */
    bool with_texts;        /* results repeat the texts */
    bool is_list;           /* Text Embeddings Inference's form, where a path has two */
    bool adds_special;      /* tokens: the special ones too */
    bool is_batch;          /* each answer in a list of its own */
    uint8_t turn;           /* enum lm_texts_turn */
};

/* Whether the reply is made of the request's texts, not of the model's outputs alone. */
static inline bool lm_texts_wish_repeats(const struct lm_texts_wish *wish) {
    return wish->with_texts || wish->ask.runs_nothing;
}

#endif
