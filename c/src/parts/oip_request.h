/* oip_request.h: an Open Inference Protocol inference request, from its JSON to the tensors.
 *
 * A parser belongs to one thread. It allocates when it is opened and never again: what it
 * holds then is about 16 bytes a byte of text, of which only what texts need is ever touched.
 * Reading first checks everything but the numbers and says where everything else is to be had
 * (rows, blobs, requested outputs), so that a slot can be found; then the numbers go straight to
 * their tensors.
 */
#ifndef LM_PARTS_OIP_REQUEST_H
#define LM_PARTS_OIP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "parts/model.h"
#include "parts/native_codec.h"

enum {
    LM_OIP_PADDING = 64,      /* readable bytes after the text; what they hold does not matter */
    LM_OIP_ID_BYTES_MAX = 256 /* of a request's id, as JSON says it */
};

struct lm_oip_parser;

/* For texts of up to `text_bytes_max`. Returns 0, LUMEN_E_INVALID or LUMEN_E_NOMEM. */
int lm_oip_parser_open(struct lm_oip_parser **out, size_t text_bytes_max);
void lm_oip_parser_close(struct lm_oip_parser *parser); /* NULL is allowed */

/* An output that the client wants. */
struct lm_oip_requested_output {
    uint8_t output; /* index in the model */
    bool binary;
    uint32_t classes; /* that many of the largest values, with their classes; 0: the tensor */
};

struct lm_oip_request {
    struct lm_sizes sizes;
    uint32_t blob_count;  /* inputs sent as binary, in the order of their blobs */
    uint64_t timeout_us;  /* 0: none said */
    uint32_t value_count; /* inputs with JSON data */
    uint32_t requested_count;
    uint32_t id_bytes; /* 0: none */
    uint8_t blob_inputs[LM_TENSORS_MAX];
    uint64_t blob_bytes[LM_TENSORS_MAX];
    /* All outputs when the client names none. */
    struct lm_oip_requested_output requested[LM_TENSORS_MAX];
    char id[LM_OIP_ID_BYTES_MAX]; /* JSON between the quotes, not terminated */
};

/* Reads and checks everything but the values. Returns LM_STATUS_OK, or LM_STATUS_BAD_REQUEST or
 * LM_STATUS_TOO_LARGE with one sentence in `why` (names in it are the client's, cut and without
 * control characters). */
enum lm_status lm_oip_read(struct lm_oip_parser *parser, const char *text, size_t bytes,
                           const struct lm_model *model, struct lm_oip_request *out, char *why,
                           size_t why_bytes);

/* After lm_oip_read said OK, with the same parser, the text still there and nothing read in
 * between: writes the numbers of the inputs with JSON data to inputs[index in the model], aligned
 * for their type. Returns LM_STATUS_OK or LM_STATUS_BAD_REQUEST; then the tensors hold some of the
 * numbers. */
enum lm_status lm_oip_values(struct lm_oip_parser *parser, const struct lm_oip_request *request,
                             const struct lm_model *model, void *const inputs[], char *why,
                             size_t why_bytes);

#endif
