/* inflate.h: what HTTP clients compress, gzip (RFC 1952) and deflate (RFC 1950: zlib's format),
 * back to the bytes it was. A worker has one inflater; it takes its memory when it is opened and
 * none afterwards.
 */
#ifndef LM_WIRE_INFLATE_H
#define LM_WIRE_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum lm_coding {
    LM_CODING_NONE,
    LM_CODING_GZIP,
    LM_CODING_DEFLATE,
    LM_CODING_PROTOBUF, /* gRPC's messages (formats/grpc_infer.h): nothing is compressed */
    LM_CODING_PROTOBUF_GZIP,
    LM_CODING_PROTOBUF_DEFLATE,
    LM_CODING_UNKNOWN
};

static inline bool lm_coding_is_message(uint8_t coding) {
    return coding >= LM_CODING_PROTOBUF && coding <= LM_CODING_PROTOBUF_DEFLATE;
}
/* How a message is compressed; LM_CODING_NONE: it is not. */
static inline enum lm_coding lm_coding_of_message(uint8_t coding) {
    return coding == LM_CODING_PROTOBUF_GZIP      ? LM_CODING_GZIP
           : coding == LM_CODING_PROTOBUF_DEFLATE ? LM_CODING_DEFLATE
                                                  : LM_CODING_NONE;
}

struct lm_inflater;

/* Returns 0 or LUMEN_E_NOMEM. */
int lm_inflater_open(struct lm_inflater **inflater_out);
void lm_inflater_close(struct lm_inflater *inflater);

/* The coding that a Content-Encoding field names; no name is none. */
enum lm_coding lm_coding_find(const char *name, size_t bytes);

/* Writes what `data` holds to `to`. Returns LM_STATUS_OK, LM_STATUS_TOO_LARGE where it is more than
 * `room` bytes, or LM_STATUS_BAD_REQUEST, with a sentence. */
enum lm_status lm_inflate(struct lm_inflater *inflater, enum lm_coding coding, const void *data,
                          size_t bytes, void *to, size_t room, size_t *bytes_out, char *why,
                          size_t why_bytes);

#endif
