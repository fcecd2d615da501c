/* native_shapes.h: the shape block of a native request, word by word as it comes: it is never kept,
 * only the sizes of the free dimensions are. I/O thread only.
 */
#ifndef LM_DIALECTS_NATIVE_SHAPES_H
#define LM_DIALECTS_NATIVE_SHAPES_H

#include "flow/connection.h"
#include "parts/model.h"

/* call->word is word `at` of the block: the number of inputs, then of each its rank and its
 * dimensions. Takes the size of a free dimension over. false: it does not fit the model or the
 * words before; then `why` is the sentence. */
bool lm_native_take_word(struct lm_native_call *call, const struct lm_model *model, uint32_t rows,
                         uint32_t at, char *why, size_t why_bytes);

/* The sizes of a request whose header is read, shape block and all. */
struct lm_sizes lm_native_sizes(const struct lm_connection *connection,
                                const struct lm_native_request *request);

#endif
