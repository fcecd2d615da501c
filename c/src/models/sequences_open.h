/* sequences_open.h: opens and closes the sequences of a model (sequences.h), whose tensors it takes
 * from those of the graph. Control thread.
 */
#ifndef LM_MODELS_SEQUENCES_OPEN_H
#define LM_MODELS_SEQUENCES_OPEN_H

#include "lumen.h"
#include "models/sequences.h"

struct lm_model;

/* From the settings, which name tensors. Returns 0 or LUMEN_E_*; `*out` is NULL then. */
int lm_sequences_open(struct lm_sequences **out, const lumen_sequences_config *config);
/* Whether the graph's tensor of that name is none of the model's; takes it then. `*code` is
 * LUMEN_E_MODEL where it cannot be what it is to be. */
bool lm_sequences_take_input(struct lm_sequences *sequences, const struct lm_tensor *tensor,
                             int *code);
bool lm_sequences_take_output(struct lm_sequences *sequences, const struct lm_tensor *tensor,
                              int *code);
/* Once all tensors are known: the table, and what Runs need. Returns 0 or LUMEN_E_*. */
int lm_sequences_settle(struct lm_sequences *sequences, const struct lm_model *model,
                        const struct lm_ort *ort);
/* NULL is allowed. */
void lm_sequences_close(struct lm_sequences *sequences, const struct lm_ort *ort);

#endif
