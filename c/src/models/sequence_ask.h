/* sequence_ask.h: what a request says of its sequence, and which one it has then (sequences.h).
 * Plain data, of the thread that has the request. */
#ifndef LM_MODELS_SEQUENCE_ASK_H
#define LM_MODELS_SEQUENCE_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

struct lm_sequence_ask {
    uint64_t id;         /* 0: none, or a text */
    uint64_t owner;      /* who asks: each owner has its own sequences; 0: a client without a key */
    uint32_t text_bytes; /* 0: none */
    bool is_bounded;     /* there are other owners: this one may have half of the sequences */
    bool starts, ends;
    char text[LM_SEQUENCE_TEXT_BYTES_MAX]; /* not terminated */
};

#define LM_SEQUENCE_NONE UINT32_MAX

/* A sequence, for the Run of one request. */
struct lm_sequence_turn {
    uint32_t at; /* in the table; LM_SEQUENCE_NONE: a Run beside all sequences */
    bool is_new; /* it was not open before */
    bool starts, ends;
};

#endif
