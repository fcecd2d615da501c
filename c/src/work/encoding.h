/* encoding.h: what a request's body holds, and how it becomes tensors. One entry per encoding: a
 * new one is a line here, a line in encoding.c's table, and its functions. An index is an
 * LM_ENCODING_* of base/status.h; estimates of cost are kept per model and encoding
 * (flow/estimate.h). Workers, and I/O threads that run models themselves.
 */
#ifndef LM_WORK_ENCODING_H
#define LM_WORK_ENCODING_H

#include "flow/request.h"

struct lm_worker;

/* Where a body may lie that its client shares (region_tensors.h). */
enum lm_in_region {
    LM_REGION_NEVER,   /* it is read more than once, and must not change meanwhile */
    LM_REGION_TENSORS, /* each tensor anywhere */
    LM_REGION_BODY     /* in one piece, of which `convert` reads each byte once */
};

struct lm_encoding {
    const char *name;
    /* Any thread. What the model lacks to take such a body, as a refusal names it; NULL: nothing.
     * NULL itself: every model takes one. */
    const char *(*missing)(const struct lm_model *model);
    /* Any thread. Bytes of a body of these sizes; false: the model takes none such, or they
     * overflow. NULL: the size follows from the body alone. */
    bool (*body_bytes)(const struct lm_model *model, const struct lm_sizes *sizes,
                       size_t *bytes_out);
    bool body_varies; /* body_bytes are the least that a body has */
    /* Any thread. The slot for a request of these sizes and bytes; false when it overflows. */
    bool (*slot_bytes)(const struct lm_model *model, const struct lm_sizes *sizes,
                       size_t body_bytes, size_t *bytes_out);
    /* I/O thread: says where the body goes in the request's slot: adds to its parts, in the order
     * of the bytes. NULL: its dialect does. */
    void (*receive)(struct lm_request *request, size_t body_bytes);
    /* Worker, before requests are grouped: what the body says of itself, such as its rows. Returns
     * LM_STATUS_OK, or why the request is refused, with a sentence. NULL: all is known already. */
    enum lm_status (*read)(struct lm_worker *worker, struct lm_request *request, char *why,
                           size_t why_bytes);
    /* Worker: writes the tensors to `inputs`, of the slot or of a batch. NULL: they are in the
     * slot's own inputs already. */
    void (*convert)(const struct lm_request *request, void *const *inputs);
    enum lm_in_region in_region;
};

/* An index is checked where it came in. */
extern const struct lm_encoding lm_encodings[LM_ENCODING_COUNT];

/* Any thread. What tensors are to this model. */
static inline uint8_t lm_encoding_for(const struct lm_model *model, uint8_t encoding) {
    bool has_strings = model->string_inputs > 0;
    return encoding == LM_ENCODING_TENSORS && has_strings ? LM_ENCODING_STRINGS : encoding;
}

/* I/O thread: the body, received as strings, is a single one without its length. */
void lm_encoding_receive_one(struct lm_request *request);

/* Any thread. The encoding of which one row has so many bytes; LM_ENCODING_COUNT: none has. */
uint8_t lm_encoding_of_row(const struct lm_model *model, const struct lm_sizes *row,
                           uint64_t bytes);

/* Any thread. Says how many bytes one row has in each encoding: "192 bytes of FP32 or 48 bytes of
 * rgb8". */
void lm_encoding_list_rows(const struct lm_model *model, const struct lm_sizes *row, char *text,
                           size_t text_bytes);

#endif
