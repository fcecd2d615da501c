/* sequences_text.h: what clients are told of a model's sequences. Any thread. */
#ifndef LM_FORMATS_SEQUENCES_TEXT_H
#define LM_FORMATS_SEQUENCES_TEXT_H

#include <stdio.h>

struct lm_sequences;

/* An object for the description of models (describe.h). */
void lm_sequences_describe(FILE *out, const struct lm_sequences *sequences);
/* The value of `sequence_batching` in a model configuration of Triton's. */
void lm_sequences_write_config(FILE *out, const struct lm_sequences *sequences);

#endif
