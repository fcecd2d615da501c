/* text_entities.h: what a model of texts names in a text: token classification. The labels of
 * tokens become entities (text/entities.h), and these JSON. Opened and closed by the control
 * thread; Runs of several workers at a time, each in its own room.
 */
#ifndef LM_MODELS_TEXT_ENTITIES_H
#define LM_MODELS_TEXT_ENTITIES_H

#include "models/labels.h"
#include "text/encode.h"
#include "text/entities.h"

struct lm_text_entities {
    const struct lm_labels *names; /* the model's */
    struct lm_entity_label *labels;
    uint32_t aggregation; /* LUMEN_AGGREGATE_* */
    uint32_t tokens_max;
    size_t json_bytes; /* of a text, at most */
};

/* Returns 0 or LUMEN_E_*. */
int lm_text_entities_open(struct lm_text_entities *entities, const struct lm_labels *names,
                          uint32_t aggregation, uint32_t tokens_max);
void lm_text_entities_close(struct lm_text_entities *entities);

/* Bytes of a worker's room, aligned to 8; where the places of its tokens are to be put. */
size_t lm_text_entities_room(const struct lm_text_entities *entities);
struct lm_text_place *lm_text_entities_places(void *room);

/* One text, of whose tokens `scores` has the logits, which are changed. Writes its entities as a
 * string on the wire, of JSON, into the room, and returns it. `aggregation`: 1 + LUMEN_AGGREGATE_*;
 * 0: as the model is set. */
const uint8_t *lm_text_entities_write(const struct lm_text_entities *entities,
                                      const struct lm_tokenizer *tokenizer, struct lm_text text,
                                      const int64_t *ids, uint32_t tokens, float *scores,
                                      uint32_t aggregation, void *room);

#endif
