/* decode.h: the ids of tokens to a text again, as Hugging Face's decoders have it. A token at a
 * time, since nobody has room for all of them. Allocates nothing: one thread.
 */
#ifndef LM_TEXT_DECODE_H
#define LM_TEXT_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/decoder.h"
#include "text/file.h"

/* Bytes that have to be UTF-8 together, as far as they came. */
struct lm_text_bytes {
    uint32_t held;       /* of a char that is not whole */
    uint32_t needed;     /* bytes of that char that are to come */
    uint8_t least, most; /* the next one of them */
};

struct lm_text_decoding {
    const struct lm_tokenizer *tokenizer;
    bool skips_special;
    char *out; /* NULL: the bytes are counted only */
    size_t bytes;
    bool has_begun; /* a token was put */
    bool has_first; /* the text's first char came */
    /* Tokens that are bytes each: how many came, where they begin, whether they are no UTF-8. */
    uint64_t run;
    size_t run_start;
    bool is_broken;
    struct lm_text_bytes utf8;
};

/* Whether texts can be made of this tokenizer's tokens. */
bool lm_text_decodes(const struct lm_tokenizer *tokenizer);

/* Puts a token, whose id is below the vocabulary's size. */
void lm_text_decode(struct lm_text_decoding *decoding, uint32_t id);
/* After the last one. The text is `bytes` long, which a second decoding of the same ids is too. */
void lm_text_decode_end(struct lm_text_decoding *decoding);

#endif
