/* carrier.h: where the bytes of a request's tensors lie when it is handed over, apart from what
 * they hold (work/encoding.h). One entry per carrier: a new one is a line of enum lm_carrier_index
 * (request.h), a line here and one in work/carrier.c, which brings the bytes to their tensors. Any
 * thread.
 */
#ifndef LM_FLOW_CARRIER_H
#define LM_FLOW_CARRIER_H

#include "flow/request.h"
#include "wire/http_form.h"

struct lm_carrier {
    /* Its client may write there at any time, and may make it slow to reach: no I/O thread touches
     * it, and no answer is kept for it. */
    bool is_shared;
    bool is_coded; /* it may hold much more than its bytes: no I/O thread takes it for small */
    bool is_file;  /* of a picture, without its length before it */
    /* Its request says where outputs go, and tensors are used there, for one Run. */
    bool has_places;
};

/* The file that a body is or holds. `at` NULL: its form is malformed, `why` is a sentence. */
struct lm_slice lm_carrier_file(const struct lm_request *request, char *why, size_t why_bytes);

extern const struct lm_carrier lm_carriers[LM_CARRIER_COUNT];

static inline const struct lm_carrier *lm_carrier_of(const struct lm_request *request) {
    return &lm_carriers[request->carrier];
}

#endif
