/* http_raw.h: a raw binary request, whose whole body is the one input of its model: one row, or the
 * bytes of one string. I/O thread only. */
#ifndef LM_DIALECTS_HTTP_RAW_H
#define LM_DIALECTS_HTTP_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/oip_request.h"
#include "models/model.h"

/* Makes a request of a raw body by its size in bytes. Returns false with a sentence. */
bool lm_http_ask_raw(const struct lm_model *model, uint64_t bytes, struct lm_oip_request *asked,
                     uint8_t *encoding_out, char *why, size_t why_bytes);

#endif
