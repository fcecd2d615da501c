/* engine_files.h: files of native engines, made in memory: a dense network and a few trees. */
#ifndef TESTS_C_ENGINE_FILES_H
#define TESTS_C_ENGINE_FILES_H

#include <sodium.h>
#include <stddef.h>

#include "check.h"
#include "engine/engine.h"

/* Room for what the tests make. */
enum { ENGINE_FILE_BYTES = 8 << 20 };

struct engine_file {
    uint8_t *bytes; /* at a multiple of LM_ENGINE_ALIGN */
    size_t count;
};

static inline struct lm_engine_header *engine_header(struct engine_file *file) {
    return (void *)file->bytes;
}

static inline void engine_file_open(struct engine_file *file, uint32_t kind, uint32_t inputs) {
    file->bytes = aligned_alloc(LM_ENGINE_PAGE, ENGINE_FILE_BYTES);
    CHECK(file->bytes != NULL);
    memset(file->bytes, 0, ENGINE_FILE_BYTES);
    file->count = sizeof(struct lm_engine_header);
    *engine_header(file) = (struct lm_engine_header){.magic = LM_ENGINE_MAGIC,
                                                     .byte_order = LM_ENGINE_BYTE_ORDER,
                                                     .version = LM_ENGINE_VERSION,
                                                     .kind = kind,
                                                     .inputs = inputs,
                                                     .label_output = LM_ENGINE_NONE};
}

/* A place of so many bytes for a section, behind what there is. */
static inline void *engine_section(struct engine_file *file, enum lm_engine_section section,
                                   size_t bytes) {
    file->count = lm_align_up(file->count, LM_ENGINE_ALIGN);
    engine_header(file)->sections[section] = (struct lm_engine_place){file->count, bytes};
    file->count += bytes;
    CHECK(file->count <= ENGINE_FILE_BYTES);
    return file->bytes + file->count - bytes;
}

/* Between the tables and the weights. */
static inline void engine_weights_begin(struct engine_file *file, size_t weight_bytes) {
    size_t blocks = (weight_bytes + LM_ENGINE_BLOCK_BYTES - 1) / LM_ENGINE_BLOCK_BYTES;
    engine_section(file, LM_SECTION_BLOCKS, blocks * LM_ENGINE_BLOCK_DIGEST_BYTES);
    engine_header(file)->tables_bytes = file->count;
    file->count = lm_align_up(file->count, LM_ENGINE_ALIGN);
    engine_header(file)->weights_offset = file->count;
}

/* Writes the digests, as they are due for what the file holds now. */
static inline void engine_seal(struct engine_file *file) {
    struct lm_engine_header *header = engine_header(file);
    const size_t before = offsetof(struct lm_engine_header, file_bytes);
    uint64_t weights = file->count - header->weights_offset;
    uint8_t *digests = file->bytes + header->sections[LM_SECTION_BLOCKS].offset;
    for (uint64_t at = 0; at < weights; at += LM_ENGINE_BLOCK_BYTES) {
        uint64_t left = weights - at;
        crypto_generichash(digests, LM_ENGINE_BLOCK_DIGEST_BYTES,
                           file->bytes + header->weights_offset + at,
                           left < LM_ENGINE_BLOCK_BYTES ? left : LM_ENGINE_BLOCK_BYTES, NULL, 0);
        digests += LM_ENGINE_BLOCK_DIGEST_BYTES;
    }
    header->file_bytes = file->count;
    crypto_generichash(header->digest, sizeof header->digest, file->bytes + before,
                       header->tables_bytes - before, NULL, 0);
}

/* The labels of so many classes: 100, 101 and so on. */
static inline void engine_labels(struct engine_file *file, uint32_t count) {
    int64_t *labels = engine_section(file, LM_SECTION_LABELS, count * sizeof *labels);
    for (uint32_t l = 0; l < count; l++) labels[l] = 100 + l;
}

/* Random weights, `count` layers as wide as `widths` says with these activations, and labels, which
 * go to no output. */
static inline void engine_make_dense(struct engine_file *file, const uint32_t *widths,
                                     const uint32_t *activations, uint32_t count,
                                     uint64_t *random) {
    engine_file_open(file, LM_ENGINE_DENSE, widths[0]);
    struct lm_engine_layer *layers =
        engine_section(file, LM_SECTION_LAYERS, count * sizeof *layers);
    size_t floats = 0;
    for (uint32_t l = 0; l < count; l++) {
        uint64_t padded = lm_padded_outputs(widths[l + 1]);
        layers[l] = (struct lm_engine_layer){.activation = activations[l],
                                             .inputs = widths[l],
                                             .outputs = widths[l + 1],
                                             .weights = floats,
                                             .bias = floats + padded * widths[l]};
        floats += padded * (widths[l] + 1);
    }
    engine_header(file)->scores = widths[count];
    engine_labels(file, widths[count]);
    engine_weights_begin(file, floats * sizeof(float));
    float *at = engine_section(file, LM_SECTION_FLOATS, floats * sizeof(float));
    for (size_t f = 0; f < floats; f++) at[f] = (float)check_below(random, 2001) / 1000 - 1;
    engine_seal(file);
}

/* A tree of one branch, for feature 0 of one, below 0.5 or not; each leaf has one of `items`. The
 * sums of `targets` are a regression's, with `base_count` base values; there are labels, too. Not
 * sealed. */
static inline void engine_make_tree(struct engine_file *file, uint32_t targets,
                                    const struct lm_engine_item *items, uint32_t item_count,
                                    const float *base, uint32_t base_count) {
    engine_file_open(file, LM_ENGINE_TREES, 1);
    struct lm_engine_header *header = engine_header(file);
    header->head = LM_HEAD_REGRESSOR;
    header->targets = header->scores = targets;
    header->compare = LM_COMPARE_LT;
    struct lm_engine_tree *tree = engine_section(file, LM_SECTION_TREES, sizeof *tree);
    *tree = (struct lm_engine_tree){.count = 4, .depth = 1};
    float *base_values = engine_section(file, LM_SECTION_BASE, base_count * sizeof *base);
    for (uint32_t b = 0; b < base_count; b++) base_values[b] = base[b];
    engine_labels(file, targets);
    engine_weights_begin(file, LM_ENGINE_BLOCK_BYTES);
    struct lm_engine_node *nodes = engine_section(file, LM_SECTION_NODES, 4 * sizeof *nodes);
    nodes[1] = (struct lm_engine_node){.value.threshold = 0.5f, .child = 2};
    nodes[2] = (struct lm_engine_node){.value.item = 0, .feature = 1, .child = 1};
    nodes[3] = (struct lm_engine_node){.value.item = 1, .feature = 1, .child = 2};
    memset(engine_section(file, LM_SECTION_FLAGS, 4), LM_COMPARE_LT, 4);
    memcpy(engine_section(file, LM_SECTION_ITEMS, item_count * sizeof *items), items,
           item_count * sizeof *items);
}

static inline void engine_file_close(struct engine_file *file) {
    free(file->bytes);
}

#endif
