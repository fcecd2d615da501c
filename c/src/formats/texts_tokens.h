/* texts_tokens.h: the replies that follow from a model's tokenizer alone: Text Embeddings
 * Inference's /tokenize and /decode. Composed by a worker, for texts_reply.h, which is asked for
 * all replies.
 */
#ifndef LM_FORMATS_TEXTS_TOKENS_H
#define LM_FORMATS_TEXTS_TOKENS_H

#include "formats/texts_answer.h"

/* As lm_texts_reply_bytes_max and lm_texts_reply. The request's texts are known. */
bool lm_texts_tokens_bytes_max(const struct lm_texts_answer *answer, size_t *json_bytes_out,
                               size_t *scratch_bytes_out);
enum lm_status lm_texts_tokens(const struct lm_texts_answer *answer, const struct lm_oip_room *room,
                               size_t *bytes_out, char *why, size_t why_bytes);

#endif
