/* oip_request.h: an Open Inference Protocol inference request, from its JSON to the tensors.
 *
 * A parser belongs to one thread. It allocates when it is opened and never again: what it
 * holds then is about 16 bytes a byte of text, of which only what texts need is ever touched.
 * Reading first checks everything but the numbers and says where everything else is to be had
 * (rows, blobs, requested outputs), so that a slot can be found; then the numbers go straight to
 * their tensors.
 */
#ifndef LM_FORMATS_OIP_REQUEST_H
#define LM_FORMATS_OIP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/native_codec.h"
#include "formats/texts_wish.h"
#include "models/model.h"
#include "models/sequence_ask.h"
#include "parts/shm_regions.h"

enum {
    LM_OIP_PADDING = 64,      /* readable bytes after the text; what they hold does not matter */
    LM_OIP_PLACES_MAX = 32,   /* tensors of a request in shared memory */
    LM_OIP_ID_BYTES_MAX = 256 /* of a request's id, as JSON says it */
};

struct lm_oip_parser;

/* For texts of up to `text_bytes_max`. Returns 0, LUMEN_E_INVALID or LUMEN_E_NOMEM. */
int lm_oip_parser_open(struct lm_oip_parser **out, size_t text_bytes_max);
void lm_oip_parser_close(struct lm_oip_parser *parser); /* NULL is allowed */
/* Tensors may be in these regions from now on. Without, they are refused. */
void lm_oip_parser_share(struct lm_oip_parser *parser, struct lm_shm_regions *regions);

/* An output that the client wants. */
struct lm_oip_requested_output {
    uint8_t output; /* index in the model */
    bool binary;
    uint32_t classes; /* that many of the largest values, with their classes; 0: the tensor */
    bool in_region;   /* the reply has none of its bytes */
};

/* Where a tensor is in shared memory. */
struct lm_oip_place {
    struct lm_shm_handle region;
    uint64_t offset, bytes; /* within the region */
    uint8_t tensor;         /* index in the model, of its inputs or its outputs */
    bool is_output;
};

struct lm_oip_request {
    struct lm_sizes sizes;
    uint32_t blob_count;  /* inputs sent as binary, in the order of their blobs */
    uint64_t timeout_us;  /* 0: none said */
    uint32_t value_count; /* inputs with JSON data */
    uint32_t requested_count;
    uint32_t id_bytes;    /* 0: none */
    bool pictures;        /* the blob is files of pictures, as strings, for the image input */
    uint32_t row_count;   /* rows of the reply (rows_reply.h); 0: whole outputs */
    uint32_t place_count; /* tensors in shared memory */
    uint32_t optionals;   /* bit n: it brings the model's n-th optional input */
    struct lm_sequence_ask sequence;
    struct lm_texts_wish texts;
    /* Memory of the caller's, with an entry for each input or output of the model. */
    uint8_t *blob_inputs;
    uint64_t *blob_bytes;
    struct lm_oip_requested_output *requested; /* all outputs when the client names none */
    struct lm_oip_place *places;               /* at most LM_OIP_PLACES_MAX */
    char id[LM_OIP_ID_BYTES_MAX];              /* JSON between the quotes, not terminated */
};

/* Memory for the lists of a request, large enough for any model. */
struct lm_oip_lists {
    uint8_t blob_inputs[LM_TENSORS_MAX];
    uint64_t blob_bytes[LM_TENSORS_MAX];
    struct lm_oip_requested_output requested[LM_TENSORS_MAX];
    struct lm_oip_place places[LM_OIP_PLACES_MAX];
};

static inline void lm_oip_request_hold(struct lm_oip_request *request, struct lm_oip_lists *lists) {
    request->blob_inputs = lists->blob_inputs;
    request->blob_bytes = lists->blob_bytes;
    request->requested = lists->requested;
    request->places = lists->places;
}

/* Empty, but for its memory. */
static inline void lm_oip_request_reset(struct lm_oip_request *request) {
    memset(request, 0, offsetof(struct lm_oip_request, blob_inputs));
}

static inline void lm_oip_request_copy(struct lm_oip_request *to,
                                       const struct lm_oip_request *from) {
    memcpy(to, from, offsetof(struct lm_oip_request, blob_inputs));
    memcpy(to->blob_inputs, from->blob_inputs, from->blob_count * sizeof *from->blob_inputs);
    memcpy(to->blob_bytes, from->blob_bytes, from->blob_count * sizeof *from->blob_bytes);
    memcpy(to->requested, from->requested, from->requested_count * sizeof *from->requested);
    memcpy(to->places, from->places, from->place_count * sizeof *from->places);
    memcpy(to->id, from->id, from->id_bytes);
}

/* Its regions stay while it holds them. false: one is gone, and none is held. */
static inline bool lm_oip_hold_regions(struct lm_shm_regions *regions,
                                       const struct lm_oip_request *request) {
    uint32_t held = 0;
    while (held < request->place_count && lm_shm_hold(regions, request->places[held].region))
        held++;
    if (held == request->place_count) return true;
    while (held > 0) lm_shm_let_go(regions, request->places[--held].region);
    return false;
}
static inline void lm_oip_leave_regions(struct lm_shm_regions *regions,
                                        const struct lm_oip_request *request) {
    for (uint32_t p = 0; p < request->place_count; p++)
        lm_shm_let_go(regions, request->places[p].region);
}

/* Reads and checks everything but the values; `out` has its memory. Returns LM_STATUS_OK, or
 * LM_STATUS_BAD_REQUEST or LM_STATUS_TOO_LARGE with one sentence in `why` (names in it are the
 * client's, cut and without control characters). */
enum lm_status lm_oip_read(struct lm_oip_parser *parser, const char *text, size_t bytes,
                           const struct lm_model *model, struct lm_oip_request *out, char *why,
                           size_t why_bytes);

/* The same: bytes that lm_oip_values will write for each input of strings with JSON data, 0 for all
 * others, and their sum. */
size_t lm_oip_strings_bytes(const struct lm_oip_parser *parser,
                            const struct lm_oip_request *request, const struct lm_model *model,
                            size_t bytes_out[]);

/* After lm_oip_read said OK, with the same parser, the text still there and nothing read in
 * between: writes the values of the inputs with JSON data to inputs[index in the model], aligned
 * for their type; strings as on the wire. Returns LM_STATUS_OK or LM_STATUS_BAD_REQUEST; then the
 * tensors hold some of the numbers. */
enum lm_status lm_oip_values(struct lm_oip_parser *parser, const struct lm_oip_request *request,
                             const struct lm_model *model, void *const inputs[], char *why,
                             size_t why_bytes);

#endif
