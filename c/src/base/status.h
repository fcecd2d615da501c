/* status.h: words that every dialect shares: how a request ended, and what its body holds.
 * Constant: any thread. */
#ifndef LM_BASE_STATUS_H
#define LM_BASE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

/* A reply's status; docs/PROTOCOL.md says when. */
enum lm_status {
    LM_STATUS_OK = 0,
    LM_STATUS_BAD_REQUEST = 1,
    LM_STATUS_UNKNOWN_MODEL = 2,
    LM_STATUS_TOO_LARGE = 3,
    LM_STATUS_OVERLOADED = 4,
    LM_STATUS_DEADLINE = 5,
    LM_STATUS_UNAUTHORISED = 6,
    LM_STATUS_RATE_LIMITED = 7,
    LM_STATUS_INFERENCE_FAILED = 8,
    LM_STATUS_SHUTTING_DOWN = 9
};

/* The encoding of a body. Those before JSON are on the wire of the native protocol. */
enum {
    LM_ENCODING_TENSORS = 0,
    LM_ENCODING_RGB8 = 1,
    LM_ENCODING_IMAGE = 2,   /* files of pictures: JPEG, as far as is known */
    LM_ENCODING_JSON = 3,    /* a request of the Open Inference Protocol that holds values */
    LM_ENCODING_ROWS = 4,    /* JSON too, in the form of KServe v1, TensorFlow Serving or MLflow */
    LM_ENCODING_STRINGS = 5, /* tensors of which some hold strings: each has its own length */
    LM_ENCODING_PNG = 6,     /* IMAGE, whose pixels cost more */
    LM_ENCODING_TEXTS = 7,   /* JSON too: texts, in the forms of their clients */
    LM_ENCODING_COUNT
};

/* Whether a body is JSON, of which only its worker knows the sizes. */
static inline bool lm_encoding_is_text(uint8_t encoding) {
    return encoding == LM_ENCODING_JSON || encoding == LM_ENCODING_ROWS ||
           encoding == LM_ENCODING_TEXTS;
}

/* Whether a body is files of pictures, whose cost follows from their pixels. */
static inline bool lm_encoding_is_image(uint8_t encoding) {
    return encoding == LM_ENCODING_IMAGE || encoding == LM_ENCODING_PNG;
}

#endif
