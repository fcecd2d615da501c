/* oip_find.h: the data arrays of a request, found in its text before simdjson sees it. They are
 * nearly all of the text and hold nothing but numbers, which can be read several times faster from
 * the text than through a tree; simdjson gets the text without them. No state: any thread. */
#ifndef LM_FORMATS_OIP_FIND_H
#define LM_FORMATS_OIP_FIND_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

/* What inputs[input].data is: from its '[' to the ']' that closes it, without a quote between. */
struct lm_oip_data {
    const char *text;
    size_t bytes;
    uint32_t input; /* rows_find.h: the field */
};

/* Finds up to LM_TENSORS_MAX of them, in the text's order. Of a text that is no JSON anything may
 * be found that begins and ends so outside of strings: the text without what lies between is then
 * no JSON either. Keys written with escapes are not recognised. Returns how many. */
uint32_t lm_oip_find_data(const char *text, size_t bytes, struct lm_oip_data found[LM_TENSORS_MAX]);

#endif
