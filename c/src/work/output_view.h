/* output_view.h: how a Run's outputs are said in JSON: as tensors, as the rows that asked, as
 * classes with their names. One entry per view, the first that fits a request is its own; a new one
 * is an entry in output_view.c. No state, no allocation. The thread that has the request.
 */
#ifndef LM_WORK_OUTPUT_VIEW_H
#define LM_WORK_OUTPUT_VIEW_H

#include "flow/request.h"
#include "formats/oip_reply.h"

struct lm_output_view {
    bool (*fits)(const struct lm_request *request); /* NULL: every one */
    /* The most that it writes: text, and scratch memory. False when one overflows. */
    bool (*bytes_max)(const struct lm_request *request, const struct lm_oip_output *outputs,
                      size_t *json_bytes_out, size_t *scratch_bytes_out);
    /* Returns LM_STATUS_OK, or why the outputs cannot be said so, with a sentence. What it sends as
     * it is are the reply's blobs, which are empty before. */
    enum lm_status (*write)(const struct lm_request *request, const struct lm_oip_output *outputs,
                            const struct lm_oip_room *room, struct lm_oip_reply *reply, char *why,
                            size_t why_bytes);
};

const struct lm_output_view *lm_output_view_of(const struct lm_request *request);

/* The outputs with the shapes they came in: from the shape block, where the request has one. They
 * have one entry for each of the model's. */
void lm_outputs_describe(const struct lm_request *request, const void *const *data,
                         const size_t *bytes, bool has_block, struct lm_oip_output *outputs);

/* How many classes of a picture are said, where the client says a number or 0. */
static inline uint32_t lm_classes_top(uint8_t asked) {
    return asked ? asked : 5;
}

#endif
