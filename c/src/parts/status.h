/* status.h: words that every dialect shares: how a request ended, and what its body holds.
 * Constant: any thread. */
#ifndef LM_PARTS_STATUS_H
#define LM_PARTS_STATUS_H

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
    LM_ENCODING_JSON = 2, /* a request of the Open Inference Protocol that holds values */
    LM_ENCODING_COUNT
};

#endif
