/* grpc_infer.h: a ModelInferRequest as what the route of HTTP takes: JSON, and behind it the
 * tensors' bytes.
 *
 * All clients write fields in ascending order, so the tensors' bytes come last. What stands before
 * them is small, and says how large each will be: they go to their slot as they come. A message of
 * another form (typed contents, several tensors of strings, another order) is received whole, and a
 * worker makes of it what it would have been. No state, no memory of its own: any thread.
 */
#ifndef LM_FORMATS_GRPC_INFER_H
#define LM_FORMATS_GRPC_INFER_H

#include "base/limits.h"
#include "base/status.h"
#include "formats/grpc_json.h"

enum {
    LM_GRPC_HEAD_BYTES_MAX = LM_HTTP_JSON_BYTES_MAX, /* of a message that is not tensors */
    LM_GRPC_BLOBS_MAX = 16, /* tensors of a request whose bytes go to the slot as they come */
    LM_GRPC_RAW_INPUTS = 7  /* raw_input_contents */
};

/* Moves on over whole fields of a message's first `have` bytes, of `all`, from *scanned on. true:
 * the fields before the tensors are there, or do not end among the first LM_GRPC_HEAD_BYTES_MAX;
 * *scanned says where they end. *tensor is the first tensor's bytes then, and *begins_out where
 * they begin; UINT64_MAX: none is found. */
bool lm_grpc_scan_head(const uint8_t *message, size_t have, size_t all, size_t *scanned,
                       uint64_t *tensor_out, size_t *begins_out);

struct lm_grpc_plan {
    bool is_plain; /* the tensors' bytes may go to the slot as they come */
    uint32_t blob_count;
    uint32_t blobs[LM_GRPC_BLOBS_MAX]; /* bytes of each tensor */
    size_t json_bytes;
};

/* Writes the JSON that says what the fields before the tensors ask. `rest` are the bytes of the
 * message from there on, `tensor` those of the first tensor. false: the fields are none, or the
 * JSON has no room, with a sentence. A plan that is not plain has no JSON. */
bool lm_grpc_plan(const uint8_t *head, size_t bytes, uint64_t rest, uint64_t tensor, char *json,
                  size_t room, struct lm_grpc_plan *plan_out, char *why, size_t why_bytes);

/* Whether its client wants to hear with each message that no other follows. */
bool lm_grpc_wants_final(const uint8_t *head, size_t bytes);

/* A whole message: the JSON and the tensors' bytes, as one body. Returns LM_STATUS_OK,
 * LM_STATUS_BAD_REQUEST or LM_STATUS_TOO_LARGE, with a sentence. */
enum lm_status lm_grpc_unpack(const uint8_t *message, size_t bytes, char *to, size_t room,
                              size_t *bytes_out, size_t *json_bytes_out, char *why,
                              size_t why_bytes);

#endif
