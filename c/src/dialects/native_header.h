/* native_header.h: the header of a native request as it comes in: 32 bytes, a credential, a shape
 * block. The shape block is read word by word and never kept: only the sizes of the free dimensions
 * are. I/O thread only.
 */
#ifndef LM_DIALECTS_NATIVE_HEADER_H
#define LM_DIALECTS_NATIVE_HEADER_H

#include "flow/connection.h"
#include "flow/model_set.h"
#include "models/model.h"

/* Bytes of the header and of the credential behind it, which is read with it: who asks is known
 * before a slot is taken. `is_whole`: lm_native_is_header has read `request`. */
uint32_t lm_native_fixed_bytes(const struct lm_native_request *request, bool is_whole);
/* Takes bytes up to `fixed`. Returns how many. */
size_t lm_native_take_fixed(struct lm_stream *in, uint32_t fixed, const uint8_t *bytes,
                            size_t count);
/* lm_native_parse, and the index of the model that has the number in this set. In another set it
 * may be another index, or none: the signature that was kept when the header came tells. */
enum lm_native_verdict lm_native_read(const struct lm_model_set *set, const uint8_t *header,
                                      struct lm_native_request *request_out, char *why,
                                      size_t why_bytes);
/* Whether the first 32 bytes are there and a header; then `request_out` is what it says. */
bool lm_native_is_header(const struct lm_model_set *set, const struct lm_stream *in,
                         struct lm_native_request *request_out);

/* call->word is word `at` of the block: the number of inputs, then of each its rank and its
 * dimensions; words come one after another. Takes the size of a free dimension over, and the rank
 * of an input of any. false: it does not fit the model or the words before; then `why` is the
 * sentence. */
bool lm_native_take_word(struct lm_native_call *call, const struct lm_model *model, uint32_t rows,
                         uint32_t at, char *why, size_t why_bytes);

/* The sizes of a request whose header is read, shape block and all. */
struct lm_sizes lm_native_sizes(const struct lm_connection *connection,
                                const struct lm_native_request *request);

#endif
