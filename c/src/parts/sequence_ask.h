/* sequence_ask.h: what a request says of its sequence, and which one it has then (sequences.h).
 * Plain data, of the thread that has the request. */
#ifndef LM_PARTS_SEQUENCE_ASK_H
#define LM_PARTS_SEQUENCE_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lm_sequence_ask {
    uint64_t id;    /* of a text: its hash; 0: none */
    uint64_t owner; /* who asks: sequences of other owners are others; 0: anybody */
    bool is_text;   /* the client gave a text */
    bool starts, ends;
};

#define LM_SEQUENCE_NONE UINT32_MAX

/* A sequence, for the Run of one request. */
struct lm_sequence_turn {
    uint32_t at; /* in the table; LM_SEQUENCE_NONE: a Run beside all sequences */
    bool starts, ends;
};

/* The number that stands for a text; never 0. */
uint64_t lm_sequence_hash(const char *text, size_t bytes);

#endif
