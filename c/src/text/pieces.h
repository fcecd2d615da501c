/* pieces.h: a text to the ids of its tokens, as Hugging Face's tokenizers have it: added tokens are
 * cut out, the rest is normalised, split, and given to the model. Allocates nothing, holds no
 * state: any thread.
 */
#ifndef LM_TEXT_PIECES_H
#define LM_TEXT_PIECES_H

#include <stdbool.h>

#include "text/file.h"
#include "text/out.h"

/* Bytes of scratch memory for reading a text. A tokenizer of BERT's kind needs none, unless places
 * are asked for. */
size_t lm_text_scratch_bytes(const struct lm_tokenizer *tokenizer, bool has_places);

/* Writes the ids of a text, the first `capacity` of them. Special tokens in the text itself are
 * what they stand for; none is put around it. Returns how many it has, but may stop when there are
 * more than `most`; or LM_TEXT_NO_UTF8. */
uint32_t lm_text_pieces(const struct lm_tokenizer *tokenizer, const char *text, size_t bytes,
                        const struct lm_text_out *out);

#endif
