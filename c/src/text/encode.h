/* encode.h: one text, or a pair of them, as the inputs of a graph: cut to a length, with the
 * special tokens around. Allocates nothing, holds no state: any thread.
 */
#ifndef LM_TEXT_ENCODE_H
#define LM_TEXT_ENCODE_H

#include <stdbool.h>

#include "text/file.h"
#include "text/out.h"

struct lm_text {
    const char *at; /* UTF-8; NULL: there is no such text */
    size_t bytes;
};

/* Where it goes. `rest` holds the second text of a pair meanwhile. */
struct lm_text_room {
    int64_t *ids, *types, *rest;
    uint32_t capacity; /* of each */
    void *scratch;     /* as of lm_text_out */
    /* Of one text: where each token stands in it, special ones nowhere (LM_TEXT_NO_ID); or NULL. */
    struct lm_text_place *places;
};

/* A text that is too long: refused, or without its end, or its start. */
enum lm_text_cut { LM_TEXT_CUT_NOTHING, LM_TEXT_CUT_END, LM_TEXT_CUT_START };

#define LM_TEXT_TOO_LONG (UINT32_MAX - 1) /* something had to be cut, and may not be */
#define LM_TEXT_TOO_SMALL                                                  \
    (UINT32_MAX - 2) /* not one token would remain beside the special ones \
                      */

/* Writes at most `tokens_max` tokens, which are at most the room's capacity. Of a pair the longer
 * text is cut first; for that both are read whole, so the caller bounds their bytes; a text whose
 * start is cut is read twice. Returns their number, LM_TEXT_NO_UTF8, LM_TEXT_TOO_LONG or
 * LM_TEXT_TOO_SMALL. */
uint32_t lm_text_encode(const struct lm_tokenizer *tokenizer, struct lm_text first,
                        struct lm_text second, uint32_t tokens_max, enum lm_text_cut cut,
                        const struct lm_text_room *room);

#endif
