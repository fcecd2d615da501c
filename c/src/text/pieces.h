/* pieces.h: a text to the ids of its pieces, as BERT's tokenizers have it: the text is normalised,
 * cut into words, and each word into the longest pieces of the vocabulary. Allocates nothing, holds
 * no state: any thread.
 */
#ifndef LM_TEXT_PIECES_H
#define LM_TEXT_PIECES_H

#include "text/file.h"

#define LM_TEXT_NO_UTF8 UINT32_MAX
#define LM_TEXT_COUNT_MAX (UINT32_MAX - 8)

/* Writes the ids of a text, the first `capacity` of them. Special tokens in the text itself are
 * what they stand for; none is put around it. Returns how many it has, but stops when there are
 * more than `most`, which is below LM_TEXT_COUNT_MAX; or LM_TEXT_NO_UTF8. */
uint32_t lm_text_pieces(const struct lm_tokenizer *tokenizer, const char *text, size_t bytes,
                        int64_t *ids, uint32_t capacity, uint32_t most);

#endif
