/* clusters.h: grapheme clusters (Unicode, annex 29), with the classes of the wheel `tokenizers`.
 * Any thread.
 */
#ifndef LM_TEXT_CLUSTERS_H
#define LM_TEXT_CLUSTERS_H

#include "text/reading.h"

/* Of a table of clusters: a class in the low byte, and what else a char is. */
enum lm_text_cluster {
    LM_CLUSTER_OTHER,
    LM_CLUSTER_CR,
    LM_CLUSTER_LF,
    LM_CLUSTER_CONTROL,
    LM_CLUSTER_EXTEND,
    LM_CLUSTER_JOINER,
    LM_CLUSTER_SPACING,
    LM_CLUSTER_PREPEND,
    LM_CLUSTER_L,
    LM_CLUSTER_V,
    LM_CLUSTER_T,
    LM_CLUSTER_LV,
    LM_CLUSTER_LVT,
    LM_CLUSTER_CLASS = 255,
    LM_CLUSTER_PICTURE = 256,
    LM_CLUSTER_CONSONANT = 512,
    LM_CLUSTER_LINKER = 1024,
    LM_CLUSTER_BETWEEN = 2048, /* may stand between a consonant and a linker */
};

/* Whether a char of this entry goes on with the cluster that is held. */
bool lm_cluster_joins(const struct lm_text_held *held, uint32_t entry);
/* Remembers it. */
void lm_cluster_look(struct lm_text_held *held, uint32_t entry);
/* The place of what the first two or three chars of a cluster become together, or 0. */
uint32_t lm_cluster_group(const struct lm_tokenizer *tokenizer, const struct lm_text_held *held,
                          uint32_t count);

#endif
