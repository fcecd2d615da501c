/* native_codec.h: the native protocol's headers, version 1 (docs/PROTOCOL.md), bytes to struct and
 * back. No state, no socket; what the numbers mean for a model is decided elsewhere. Any thread.
 */
#ifndef LM_BASE_NATIVE_CODEC_H
#define LM_BASE_NATIVE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { LM_NATIVE_REQUEST_BYTES = 32, LM_NATIVE_REPLY_BYTES = 48, LM_NATIVE_CREDENTIAL_BYTES = 32 };

#define LM_NATIVE_MAGIC "LMN1"
enum { LM_NATIVE_MAGIC_BYTES = 4 };

enum { LM_KIND_INFER = 1, LM_KIND_PING = 2, LM_KIND_DESCRIBE = 3, LM_KIND_REGION = 4 };
enum { LM_FLAG_CREDENTIAL = 1, LM_FLAG_SHAPES = 2, LM_FLAG_REGION = 4 };

struct lm_native_request {
    uint64_t id;
    uint32_t payload_bytes;
    uint32_t timeout_us;
    uint32_t rows;   /* never 0: 0 on the wire is 1 */
    uint16_t number; /* of the model, as describe gives it */
    uint16_t model;  /* its index, which the reader of the header finds */
    uint16_t flags;
    uint8_t kind;
    uint8_t encoding;
};

enum lm_native_verdict {
    LM_NATIVE_OK,
    LM_NATIVE_BAD,     /* the frame's end is known: answer, skip the payload, go on */
    LM_NATIVE_NO_FRAME /* not this protocol: answer and close */
};

/* Whether the first `count` bytes can be the start of a request header. */
bool lm_native_may_be_header(const uint8_t *bytes, size_t count);

/* Reads a whole request header. Unless the verdict is OK, writes the reason to `why`. */
enum lm_native_verdict lm_native_parse(const uint8_t bytes[LM_NATIVE_REQUEST_BYTES],
                                       struct lm_native_request *request_out, char *why,
                                       size_t why_bytes);

struct lm_native_reply {
    uint64_t id;
    uint32_t payload_bytes;
    uint32_t rows;
    uint32_t receive_us;
    uint32_t queue_us;
    uint32_t preprocess_us;
    uint32_t infer_us;
    uint16_t status; /* enum lm_status */
    uint16_t flags;
    uint16_t width;  /* cores of its Run; 0: there was none, or it failed */
    uint16_t expert; /* 1 + the number of the model that ran in its place; 0: none did */
};

void lm_native_write_reply(uint8_t bytes[LM_NATIVE_REPLY_BYTES],
                           const struct lm_native_reply *reply);

#endif
