/* oip_reply.h: the JSON of an Open Inference Protocol inference reply, composed by a worker in
 * memory that the caller gives. No state, no allocation.
 *
 * A reply's body is the JSON, then the blobs in the order of `blobs`. Outputs requested as binary
 * stay where they are; what classification writes for binary outputs lies in the scratch memory.
 */
#ifndef LM_FORMATS_OIP_REPLY_H
#define LM_FORMATS_OIP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/oip_request.h"
#include "models/labels.h"
#include "models/model.h"

/* One output as it came out of a Run. */
struct lm_oip_output {
    const struct lm_tensor *tensor;
    const void *data; /* aligned for its type */
    size_t bytes;
    uint32_t rank;
    int64_t dims[LM_RANK_MAX];
};

struct lm_oip_blob {
    const void *data;
    size_t bytes;
};

struct lm_oip_reply {
    size_t json_bytes;  /* Inference-Header-Content-Length, where there are blobs */
    size_t blobs_bytes; /* of all blobs together */
    uint32_t blob_count;
    struct lm_oip_blob blobs[LM_TENSORS_MAX];
};

/* Upper bounds of what lm_oip_write needs for this request. `outputs` has one entry for each of the
 * model's outputs, in its order; only strings' `data` is looked at, where it is not NULL. False
 * when a bound overflows. */
bool lm_oip_reply_bytes_max(const struct lm_model *model, const struct lm_oip_request *request,
                            const struct lm_oip_output *outputs, const struct lm_labels *labels,
                            size_t *json_bytes_out, size_t *scratch_bytes_out);

struct lm_oip_room {
    char *json;
    size_t json_bytes;
    void *scratch; /* aligned to 4; only needed for classification */
    size_t scratch_bytes;
};

/* Composes the reply. `labels` may be NULL. Returns LM_STATUS_OK, LM_STATUS_BAD_REQUEST or (for
 * NaN and infinity) LM_STATUS_INFERENCE_FAILED when an output cannot be said in JSON (a sentence in
 * `why` says which and what to ask for), or
 * LM_STATUS_TOO_LARGE when the room is smaller than what lm_oip_reply_bytes_max said. */
enum lm_status lm_oip_write(const struct lm_model *model, const struct lm_oip_request *request,
                            const struct lm_oip_output *outputs, const struct lm_labels *labels,
                            const struct lm_oip_room *room, struct lm_oip_reply *reply_out,
                            char *why, size_t why_bytes);

#endif
