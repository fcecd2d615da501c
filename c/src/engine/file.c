/* file.c: see file.h. */
#include "engine/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "engine/tree_check.h"

enum { SAMPLED_BLOCKS = 8 };

static int refuse(const char *what, uint64_t expected, uint64_t found) {
    return lm_error(LUMEN_E_MODEL, "%s: expected %llu, found %llu", what,
                    (unsigned long long)expected, (unsigned long long)found);
}

/* ---- header ---- */

static int check_header(const struct lm_engine_header *header, size_t count) {
    if (count < sizeof *header)
        return refuse("its length, of which the header alone has", sizeof *header, count);
    if (memcmp(header->magic, LM_ENGINE_MAGIC, sizeof header->magic) != 0)
        return lm_error(LUMEN_E_MODEL, "expected the first bytes %s, found others",
                        LM_ENGINE_MAGIC);
    if (header->byte_order != LM_ENGINE_BYTE_ORDER)
        return lm_error(LUMEN_E_MODEL,
                        "it is of a machine with another byte order: expected %#x, found %#x",
                        LM_ENGINE_BYTE_ORDER, header->byte_order);
    if (header->version != LM_ENGINE_VERSION)
        return refuse("version", LM_ENGINE_VERSION, header->version);
    if (header->file_bytes != count) return refuse("bytes", header->file_bytes, count);
    uint64_t weights = lm_align_up(header->tables_bytes, LM_ENGINE_ALIGN);
    if (header->tables_bytes < sizeof *header || header->tables_bytes > count ||
        header->weights_offset != weights || weights > count)
        return refuse("tables_bytes, of the whole file at most", count, header->tables_bytes);
    return 0;
}

/* ---- sections ---- */

/* Where a section's items lie; NULL: it has none. `weights`: behind the tables. */
static int find(const uint8_t *bytes, const struct lm_engine_header *header,
                enum lm_engine_section section, size_t item_bytes, const void **at_out,
                uint64_t *count_out) {
    const struct lm_engine_place *place = &header->sections[section];
    bool weights = section >= LM_SECTION_FLOATS;
    uint64_t first = weights ? header->weights_offset : sizeof *header;
    uint64_t end = weights ? header->file_bytes : header->tables_bytes;
    *at_out = NULL;
    *count_out = 0;
    if (place->bytes == 0) return 0;
    if (place->offset < first || place->offset > end || place->bytes > end - place->offset ||
        place->offset % LM_ENGINE_ALIGN != 0 || place->bytes % item_bytes != 0)
        return lm_error(LUMEN_E_MODEL,
                        "section %d: expected it within bytes %llu to %llu, found %llu bytes at "
                        "%llu",
                        (int)section, (unsigned long long)first, (unsigned long long)end,
                        (unsigned long long)place->bytes, (unsigned long long)place->offset);
    *at_out = bytes + place->offset;
    *count_out = place->bytes / item_bytes;
    return 0;
}

static int find_sections(struct lm_engine_view *view, const uint8_t *bytes) {
    const struct lm_engine_header *header = view->header;
    const void *at[LM_SECTION_COUNT];
    uint64_t counts[LM_SECTION_COUNT];
    static const size_t item_bytes[LM_SECTION_COUNT] = {
        [LM_SECTION_LAYERS] = sizeof(struct lm_engine_layer),
        [LM_SECTION_TREES] = sizeof(struct lm_engine_tree),
        [LM_SECTION_LABELS] = sizeof(int64_t),
        [LM_SECTION_BASE] = sizeof(float),
        [LM_SECTION_BLOCKS] = LM_ENGINE_BLOCK_DIGEST_BYTES,
        [LM_SECTION_FLOATS] = sizeof(float),
        [LM_SECTION_NODES] = sizeof(struct lm_engine_node),
        [LM_SECTION_FLAGS] = 1,
        [LM_SECTION_ITEMS] = sizeof(struct lm_engine_item)};
    for (int s = 0; s < LM_SECTION_COUNT; s++) {
        int code =
            find(bytes, header, (enum lm_engine_section)s, item_bytes[s], &at[s], &counts[s]);
        if (code) return code;
    }
    if (counts[LM_SECTION_LAYERS] > LM_ENGINE_LAYERS_MAX)
        return refuse("layers, at most", LM_ENGINE_LAYERS_MAX, counts[LM_SECTION_LAYERS]);
    if (counts[LM_SECTION_TREES] > LM_ENGINE_TREES_MAX)
        return refuse("trees, at most", LM_ENGINE_TREES_MAX, counts[LM_SECTION_TREES]);
    if (counts[LM_SECTION_LABELS] > LM_ENGINE_CLASSES_MAX ||
        counts[LM_SECTION_BASE] > LM_ENGINE_CLASSES_MAX)
        return refuse("classes, at most", LM_ENGINE_CLASSES_MAX, counts[LM_SECTION_LABELS]);
    view->layers = at[LM_SECTION_LAYERS];
    view->layer_count = (uint32_t)counts[LM_SECTION_LAYERS];
    view->trees = at[LM_SECTION_TREES];
    view->tree_count = (uint32_t)counts[LM_SECTION_TREES];
    view->labels = at[LM_SECTION_LABELS];
    view->label_count = (uint32_t)counts[LM_SECTION_LABELS];
    view->base = at[LM_SECTION_BASE];
    view->base_count = (uint32_t)counts[LM_SECTION_BASE];
    view->floats = at[LM_SECTION_FLOATS];
    view->float_count = counts[LM_SECTION_FLOATS];
    view->nodes = at[LM_SECTION_NODES];
    view->node_count = counts[LM_SECTION_NODES];
    view->flags = at[LM_SECTION_FLAGS];
    view->items = at[LM_SECTION_ITEMS];
    view->item_count = counts[LM_SECTION_ITEMS];
    if (counts[LM_SECTION_FLAGS] != view->node_count)
        return refuse("flags, one a node", view->node_count, counts[LM_SECTION_FLAGS]);
    return 0;
}

/* ---- dense networks ---- */

static bool fits(const struct lm_engine_view *view, uint64_t first, uint64_t count) {
    return first % LM_PANEL_STEP == 0 && first <= view->float_count &&
           count <= view->float_count - first;
}

static int check_layer(const struct lm_engine_view *view, uint32_t l, uint32_t width) {
    const struct lm_engine_layer *layer = &view->layers[l];
    if (layer->inputs != width || layer->outputs == 0 || layer->outputs > LM_ENGINE_WIDTH_MAX)
        return lm_error(LUMEN_E_MODEL, "layer %u: expected %u inputs, found %u and %u outputs", l,
                        width, layer->inputs, layer->outputs);
    if (layer->kind > LM_LAYER_SCALE || layer->activation > LM_ACTIVATION_SOFTMAX ||
        (layer->kind == LM_LAYER_SCALE && layer->outputs != layer->inputs))
        return lm_error(LUMEN_E_MODEL, "layer %u: kind %u, activation %u: not known", l,
                        layer->kind, layer->activation);
    uint64_t padded = lm_padded_outputs(layer->outputs);
    uint64_t weights = layer->kind == LM_LAYER_LINEAR ? padded * layer->inputs : padded;
    if (fits(view, layer->weights, weights) && fits(view, layer->bias, padded)) return 0;
    return refuse("weights, at least", weights + padded, view->float_count);
}

static int check_dense(const struct lm_engine_view *view) {
    const struct lm_engine_header *header = view->header;
    uint32_t width = header->inputs;
    if (view->layer_count == 0) return refuse("layers, at least", 1, 0);
    for (uint32_t l = 0; l < view->layer_count; l++) {
        int code = check_layer(view, l, width);
        if (code) return code;
        width = view->layers[l].outputs;
    }
    bool binary = header->head == LM_HEAD_BINARY;
    if (header->head > LM_HEAD_BINARY) return refuse("head, at most", 1, header->head);
    if (binary && width != 1) return refuse("elements behind the last layer", 1, width);
    uint32_t scores = binary ? 2 : width;
    if (header->scores != scores) return refuse("elements of the output", scores, header->scores);
    if (header->label_output != LM_ENGINE_NONE && view->label_count != scores)
        return refuse("labels", scores, view->label_count);
    return 0;
}

/* ---- the whole ---- */

int lm_engine_view_open(struct lm_engine_view *view, const uint8_t *bytes, size_t count) {
    const struct lm_engine_header *header = (const void *)bytes;
    *view = (struct lm_engine_view){.header = header};
    int code = check_header(header, count);
    if (!code) code = find_sections(view, bytes);
    if (code) return code;
    if (header->inputs == 0 || header->inputs > LM_ENGINE_WIDTH_MAX || header->scores == 0 ||
        header->scores > LM_ENGINE_WIDTH_MAX)
        return refuse("elements of a row, at most", LM_ENGINE_WIDTH_MAX, header->inputs);
    if (header->score_output == LM_ENGINE_NONE && header->label_output == LM_ENGINE_NONE)
        return lm_error(LUMEN_E_MODEL, "expected an output, found none");
    if (header->kind == LM_ENGINE_DENSE) return check_dense(view);
    if (header->kind == LM_ENGINE_TREES) return lm_trees_check(view);
    return refuse("kind, at most", LM_ENGINE_TREES, header->kind);
}

static int compare(const uint8_t *bytes, size_t count, const uint8_t *digest, size_t digest_bytes,
                   const char *what, uint64_t number) {
    uint8_t found[LM_ENGINE_DIGEST_BYTES];
    crypto_generichash(found, digest_bytes, bytes, count, NULL, 0);
    if (memcmp(found, digest, digest_bytes) == 0) return 0;
    return lm_error(LUMEN_E_MODEL, "the checksum of %s %llu does not fit: the file is damaged",
                    what, (unsigned long long)number);
}

static int check_tables(const struct lm_engine_header *header) {
    const size_t before = offsetof(struct lm_engine_header, file_bytes);
    return compare((const uint8_t *)header + before, header->tables_bytes - before, header->digest,
                   sizeof header->digest, "table", 0);
}

/* The first, the last and some between, other ones at each start; or all. */
static int check_blocks(const struct lm_engine_header *header, bool whole) {
    const uint8_t *bytes = (const void *)header;
    const struct lm_engine_place *place = &header->sections[LM_SECTION_BLOCKS];
    uint64_t weights = header->file_bytes - header->weights_offset;
    uint64_t blocks = (weights + LM_ENGINE_BLOCK_BYTES - 1) / LM_ENGINE_BLOCK_BYTES;
    uint64_t step = whole || blocks <= SAMPLED_BLOCKS ? 1 : (blocks - 1) / (SAMPLED_BLOCKS - 1);
    if (place->bytes != blocks * LM_ENGINE_BLOCK_DIGEST_BYTES)
        return refuse("digests of blocks", blocks, place->bytes / LM_ENGINE_BLOCK_DIGEST_BYTES);
    uint64_t shift = step > 1 ? lm_now_ns() / 1000 % step : 0;
    for (uint64_t at = 0; at < blocks; at += step) {
        uint64_t block = at == 0 ? 0 : at + shift < blocks ? at + shift : blocks - 1;
        uint64_t first = block * LM_ENGINE_BLOCK_BYTES;
        uint64_t left = weights - first;
        int code = compare(bytes + header->weights_offset + first,
                           left < LM_ENGINE_BLOCK_BYTES ? left : LM_ENGINE_BLOCK_BYTES,
                           bytes + place->offset + block * LM_ENGINE_BLOCK_DIGEST_BYTES,
                           LM_ENGINE_BLOCK_DIGEST_BYTES, "block", block);
        if (code) return code;
    }
    return 0;
}

/* Like lm_file_map, but for the pages, which are not read. */
static int map(struct lm_mapping *file, const char *path) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *file = (struct lm_mapping){0};
    if (fd < 0) return lm_error_errno(LUMEN_E_IO, errno, "cannot open %s", path);
    void *base = MAP_FAILED;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
        base = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (base == MAP_FAILED) return lm_error(LUMEN_E_IO, "%s: expected a file, found none", path);
    file->base = base;
    file->bytes = (size_t)status.st_size;
    return 0;
}

int lm_engine_file_open(struct lm_mapping *file, struct lm_engine_view *view, const char *path,
                        bool whole) {
    int code = map(file, path);
    if (code) return code;
    /* Before a table is believed: the header alone, then the digest of both. */
    code = check_header(file->base, file->bytes);
    if (!code) code = check_tables(file->base);
    if (!code) code = lm_engine_view_open(view, file->base, file->bytes);
    if (!code) code = check_blocks(view->header, whole);
    if (code) lm_mapping_close(file);
    return code;
}
