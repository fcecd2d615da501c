/* oip_region.h: the JSON with which a client registers a shared memory region. A parser belongs to
 * one thread. */
#ifndef LM_FORMATS_OIP_REGION_H
#define LM_FORMATS_OIP_REGION_H

#include "formats/oip_request.h"
#include "parts/shm_regions.h"

/* Reads key, offset and byte_size; the name is the caller's. Returns LM_STATUS_OK or
 * LM_STATUS_BAD_REQUEST, with a sentence. */
enum lm_status lm_oip_read_region(struct lm_oip_parser *parser, const char *text, size_t bytes,
                                  struct lm_shm_info *out, char *why, size_t why_bytes);

#endif
