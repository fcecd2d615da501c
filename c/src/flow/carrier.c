/* carrier.c: see carrier.h. */
#include "flow/carrier.h"

struct lm_slice lm_carrier_file(const struct lm_request *request, char *why, size_t why_bytes) {
    const struct lm_body *body = &request->body;
    const char *file = (const char *)request->layout.raw;
    if (request->carrier == LM_CARRIER_FORM)
        return lm_http_form_content(body->text, body->bytes, (size_t)(file - body->text), why,
                                    why_bytes);
    return (struct lm_slice){file, request->layout.raw_bytes};
}

const struct lm_carrier lm_carriers[LM_CARRIER_COUNT] = {
    [LM_CARRIER_SLOT] = {},
    [LM_CARRIER_FILE] = {.is_file = true},
    [LM_CARRIER_FORM] = {.is_file = true},
    [LM_CARRIER_CODED] = {.is_coded = true},
    [LM_CARRIER_REGION] = {.is_shared = true, .has_places = true},
    [LM_CARRIER_SHM] = {.is_shared = true},
};
