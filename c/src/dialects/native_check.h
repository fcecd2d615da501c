/* native_check.h: whether the model that a native request names can take it, before a byte of its
 * body is read. I/O thread only.
 */
#ifndef LM_DIALECTS_NATIVE_CHECK_H
#define LM_DIALECTS_NATIVE_CHECK_H

#include "flow/state.h"
#include "models/layout.h"
#include "work/encoding.h"

static inline uint32_t lm_native_credential_bytes(uint16_t flags) {
    return flags & LM_FLAG_CREDENTIAL ? (uint32_t)LM_NATIVE_CREDENTIAL_BYTES : 0;
}

/* Of the shape block, as far as its words tell: inputs of any rank say theirs there. */
static inline uint32_t lm_native_shape_bytes(const struct lm_connection *connection,
                                             const struct lm_model *model, uint16_t flags) {
    return flags & LM_FLAG_SHAPES ? lm_model_shape_block_bytes(model, connection->in.native.free)
                                  : 0;
}

/* Returns LM_STATUS_OK, or why not, with a sentence. */
enum lm_status lm_native_check(const struct lm_io *io, const struct lm_connection *connection,
                               const struct lm_native_request *request, char *why,
                               size_t why_bytes);
/* The slot that a request needs, of a model that there is; false: no slot has so much. */
bool lm_native_fits(const struct lm_io *io, const struct lm_connection *connection,
                    const struct lm_native_request *request, size_t *bytes_out);

#endif
