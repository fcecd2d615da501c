/* shm_tensors.h: copies the tensors of a request between its slot and the shared memory regions
 * that it names (parts/shm_regions.h). Workers. */
#ifndef LM_WORK_SHM_TENSORS_H
#define LM_WORK_SHM_TENSORS_H

#include "flow/request.h"

/* Before requests are grouped: the inputs. Returns LM_STATUS_OK, or why not, with a sentence. */
enum lm_status lm_shm_tensors_read(struct lm_request *request, char *why, size_t why_bytes);
/* After the Run: the outputs, of these bytes. false with a sentence. */
bool lm_shm_tensors_write(const struct lm_request *request, const void *const *data,
                          const size_t *bytes, char *why, size_t why_bytes);

/* I/O thread: adds the bytes of the slot for strings that the worker copies from there; false when
 * they overflow. And their places. */
bool lm_shm_tensors_add_room(const struct lm_model *model, const struct lm_oip_request *asked,
                             size_t *total);
void lm_shm_tensors_place(struct lm_request *request, const struct lm_oip_request *asked);

#endif
