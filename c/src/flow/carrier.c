/* carrier.c: see carrier.h. */
#include "flow/carrier.h"

const struct lm_carrier lm_carriers[LM_CARRIER_COUNT] = {
    [LM_CARRIER_SLOT] = {},
    [LM_CARRIER_FILE] = {.is_file = true},
    [LM_CARRIER_FORM] = {.is_file = true},
    [LM_CARRIER_CODED] = {.is_coded = true},
    [LM_CARRIER_REGION] = {.is_shared = true, .has_places = true},
    [LM_CARRIER_SHM] = {.is_shared = true},
};
