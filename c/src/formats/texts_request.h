/* texts_request.h: a request of texts, in the forms that their clients have: OpenAI's embeddings,
 * Text Embeddings Inference's /embed, /predict, /rerank and /similarity, Cohere's and Jina's
 * rerank. From its JSON to the tensors of a model of texts (models/text_model.h).
 *
 * Read with an Open Inference Protocol's parser, in three steps: the JSON, which says the model;
 * what it asks of that; the texts. A parser belongs to one thread.
 */
#ifndef LM_FORMATS_TEXTS_REQUEST_H
#define LM_FORMATS_TEXTS_REQUEST_H

#include "formats/oip_request.h"

/* Reads the JSON. Returns LM_STATUS_OK, or why it is refused, with a sentence. */
enum lm_status lm_texts_parse(struct lm_oip_parser *parser, const char *text, size_t bytes,
                              char *why, size_t why_bytes);

/* The model that it names; NULL: none. Not terminated. */
const char *lm_texts_model(const struct lm_oip_parser *parser, size_t *bytes_out);

/* After lm_texts_parse said OK: what it asks of this model on a route (enum lm_http_route). Returns
 * as above. */
enum lm_status lm_texts_read(struct lm_oip_parser *parser, const struct lm_model *model,
                             uint8_t route, struct lm_oip_request *out, char *why,
                             size_t why_bytes);

/* After lm_texts_read said OK: the bytes that lm_texts_write writes for each input. */
void lm_texts_bytes(const struct lm_oip_parser *parser, const struct lm_model *model,
                    size_t bytes_out[]);
/* Writes the strings as on the wire. */
void lm_texts_write(const struct lm_oip_parser *parser, const struct lm_model *model,
                    void *const inputs[]);

#endif
