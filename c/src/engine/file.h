/* file.h: the reader of a native engine's file (format.h). Its bytes are not trusted: whatever they
 * are, a view of them that was accepted can be run without a read outside of it.
 *
 * Header and tables are compared with their digest at every open, trees are checked whole (a node
 * may name any other). Of the weights, whose size nothing here depends on, a few blocks are
 * compared with their digests, or all of them where the caller asks. Control thread.
 */
#ifndef LM_ENGINE_FILE_H
#define LM_ENGINE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"
#include "engine/format.h"

/* Where things lie in the mapped file. */
struct lm_engine_view {
    const struct lm_engine_header *header;
    const struct lm_engine_layer *layers;
    uint32_t layer_count;
    const struct lm_engine_tree *trees;
    uint32_t tree_count;
    const int64_t *labels;
    uint32_t label_count;
    const float *base; /* of trees */
    uint32_t base_count;
    const float *floats;
    uint64_t float_count;
    const struct lm_engine_node *nodes;
    const uint8_t *flags;
    uint64_t node_count;
    const struct lm_engine_item *items;
    uint64_t item_count;
};

/* Maps a file of ours without reading it: its pages come when they are touched. Returns 0 or
 * LUMEN_E_* with a sentence that says what was expected and found. */
int lm_engine_file_open(struct lm_mapping *file, struct lm_engine_view *view, const char *path,
                        bool whole);
/* What is done to the bytes but for the digests: 0, or LUMEN_E_MODEL with the sentence. `bytes`
 * begin at a multiple of LM_ENGINE_ALIGN. */
int lm_engine_view_open(struct lm_engine_view *view, const uint8_t *bytes, size_t count);

#endif
