/* upstream_fallback.h: another model in the place of one that cannot answer (flow/fallbacks.h): of
 * an upstream that has failed before its answer began, or of a model here that would be too late.
 * I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_FALLBACK_H
#define LM_DIALECTS_UPSTREAM_FALLBACK_H

#include "dialects/upstream_state.h"

/* The next model that may answer in the place of the one that the client asked for, which its key
 * may use; each is given once. NULL: there is none. */
const struct lm_model *lm_upstream_next_model(struct lm_io *io, uint32_t slot);
/* Whether there is one. */
bool lm_upstream_has_next_model(struct lm_io *io, uint32_t slot);
/* A whole request of texts that its model here does not take: the model of an upstream that lets it
 * in, in its place; NULL: there is none. */
const struct lm_model *lm_upstream_spill(struct lm_io *io, struct lm_request *request,
                                         struct lm_openai_request *asked);

#endif
