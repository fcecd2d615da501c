/* region_tensors.h: a request whose tensors lie in memory that it shares with its client
 * (flow/region.h): they are read and written there, without a copy, where that is safe.
 *
 * The client may write to the region at any time. What says where the tensors are is read once,
 * into the slot. Numbers that operators use as indexes, sizes or conditions (integers of 16 bits
 * and more, booleans) are read and written in the slot, and copied: an operator that has checked an
 * index reads it again. Strings and text are not read from a region at all. Workers, where no other
 * thread is named.
 */
#ifndef LM_WORK_REGION_TENSORS_H
#define LM_WORK_REGION_TENSORS_H

#include "flow/request.h"

/* Any thread. The spans that a request names: its inputs, or the one body that becomes them, then
 * its outputs. 0: a region cannot hold what this model and encoding need. */
uint32_t lm_region_span_count(const struct lm_model *model, uint8_t encoding);
/* Any thread. The slot of such a request; false when it overflows. */
bool lm_region_slot_bytes(const struct lm_model *model, uint8_t encoding,
                          const struct lm_sizes *sizes, size_t *bytes_out);
/* I/O thread: the spans are the request's body. */
void lm_region_receive(struct lm_request *request);

/* Worker, before requests are grouped: checks the spans and lays the tensors out. Returns
 * LM_STATUS_OK, or why not, with a sentence. */
enum lm_status lm_region_place(struct lm_request *request, char *why, size_t why_bytes);
/* Worker: where an output of unknown shape goes; NULL with a sentence: it does not fit there. */
void *lm_region_room(const struct lm_request *request, uint32_t output, size_t bytes);
/* Worker: copies the outputs that are not in the region yet. The reply carries none of their bytes.
 */
void lm_region_put(const struct lm_request *request, const void *const *data, size_t *bytes);

#endif
