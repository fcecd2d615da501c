/* clusters.h: grapheme clusters (Unicode, annex 29), with the classes of the wheel `tokenizers`.
 * Any thread.
 */
#ifndef LM_TEXT_CLUSTERS_H
#define LM_TEXT_CLUSTERS_H

#include "text/reading.h"

/* Whether a char of this entry goes on with the cluster that is held. */
bool lm_cluster_joins(const struct lm_text_held *held, uint32_t entry);
/* Remembers it. */
void lm_cluster_look(struct lm_text_held *held, uint32_t entry);
/* The place of what the first two or three chars of a cluster become together, or 0. */
uint32_t lm_cluster_group(const struct lm_tokenizer *tokenizer, const struct lm_text_held *held,
                          uint32_t count);

#endif
