/* test_engine_file.c: files of native engines that are cut, damaged or of another machine are
 * refused with the reason; any other bytes are refused or can be run. */
#include "base/error.h"
#include "engine_files.h"

static char path[128];

/* Opens what the file holds now; NULL: it is accepted. Nothing of it stays mapped. */
static const char *refusal(const struct engine_file *file, bool whole) {
    struct lm_engine engine;
    check_write_file(path, file->bytes, file->count);
    int code = lm_engine_open(&engine, path, whole);
    CHECK(check_is_mapped(path) == !code);
    if (code) return lm_error_last();
    lm_engine_close(&engine);
    CHECK(!check_is_mapped(path));
    return NULL;
}

static bool says(const char *refused, const char *words) {
    if (refused && strstr(refused, words)) return true;
    printf("expected \"%s\", found \"%s\"\n", words, refused ? refused : "no refusal");
    return false;
}

static void make(struct engine_file *file, uint64_t *random) {
    engine_make_dense(file, (const uint32_t[]){300, 700, 5},
                      (const uint32_t[]){LM_ACTIVATION_RELU, LM_ACTIVATION_NONE}, 2, random);
}

static void test_header(uint64_t *random) {
    struct engine_file file;
    make(&file, random);
    struct lm_engine_header *header = engine_header(&file), good = *header;
    CHECK(refusal(&file, true) == NULL);
    header->magic[3] ^= 1;
    CHECK(says(refusal(&file, false), "expected the first bytes LMENGINE"));
    *header = good;
    header->byte_order = __builtin_bswap32(header->byte_order);
    CHECK(says(refusal(&file, false), "another byte order"));
    *header = good;
    header->version++;
    CHECK(says(refusal(&file, false), "version: expected 1, found 2"));
    *header = good;
    header->inputs--;
    CHECK(says(refusal(&file, false), "checksum of table 0"));
    engine_seal(&file);
    CHECK(says(refusal(&file, false), "layer 0: expected 299 inputs, found 300"));
    *header = good;
    file.count -= 5;
    CHECK(says(refusal(&file, false), "bytes: expected"));
    file.count = 100;
    CHECK(says(refusal(&file, false), "the header alone has"));
    engine_file_close(&file);
}

static void test_weights(uint64_t *random) {
    struct engine_file file;
    make(&file, random);
    CHECK(file.count > 3 * LM_ENGINE_BLOCK_BYTES); /* several blocks */
    for (uint32_t turn = 0; turn < 20; turn++) {
        uint64_t weights = file.count - engine_header(&file)->weights_offset;
        uint64_t at = engine_header(&file)->weights_offset + check_random(random) % weights;
        file.bytes[at] ^= 0x10;
        CHECK_AT("byte %llu", (unsigned long long)at);
        CHECK(says(refusal(&file, true), "checksum of block"));
        file.bytes[at] ^= 0x10;
    }
    CHECK(refusal(&file, true) == NULL);
    engine_file_close(&file);
}

/* The kernels read whole panels: weights that end before their padding are refused. */
static void test_padding(uint64_t *random) {
    struct engine_file file;
    uint32_t activation = LM_ACTIVATION_NONE, widths[] = {3, 20};
    engine_make_dense(&file, widths, &activation, 1, random);
    struct lm_engine_header *header = engine_header(&file);
    struct lm_engine_place *floats = &header->sections[LM_SECTION_FLOATS];
    struct lm_engine_layer *layer =
        (void *)(file.bytes + header->sections[LM_SECTION_LAYERS].offset);
    layer->bias = 0;
    layer->weights = 32; /* behind the bias */
    engine_seal(&file);
    CHECK(refusal(&file, true) == NULL);
    while (floats->bytes > (32 + 3 * 20) * sizeof(float)) {
        floats->bytes -= sizeof(float);
        file.count -= sizeof(float);
        engine_seal(&file);
        CHECK_AT("%llu bytes of weights", (unsigned long long)floats->bytes);
        CHECK(says(refusal(&file, true), "weights, at least: expected 128, found "));
    }
    engine_file_close(&file);
}

/* Runs the tree of the file on one feature. */
static void check_sums(struct engine_file *file, float feature, const float *expected) {
    struct lm_engine_view view;
    struct lm_engine engine;
    float scores[3];
    engine_seal(file);
    CHECK(lm_engine_view_open(&view, file->bytes, file->count) == 0);
    CHECK(lm_engine_open_view(&engine, &view) == 0);
    lm_engine_run(&engine, 0, &feature, (void *[]){scores}, 1, NULL);
    for (uint32_t t = 0; t < 3; t++) {
        CHECK_AT("target %u of %g: %g, not %g", t, (double)feature, (double)scores[t],
                 (double)expected[t]);
        CHECK(scores[t] == expected[t]);
    }
    lm_engine_close(&engine);
}

/* Items and base values of the trees' targets; what lies behind them is nobody's. */
static void test_targets(void) {
    static const struct lm_engine_item items[] = {
        {0, 1}, {1 | LM_ITEM_LAST, 2}, {2 | LM_ITEM_LAST, 4}};
    static const float base[] = {10, 20, 30};
    struct engine_file file;
    engine_make_tree(&file, 3, items, 3, base, 3);
    check_sums(&file, 0, (const float[]){11, 22, 0});
    check_sums(&file, 1, (const float[]){0, 22, 0});
    struct lm_engine_node *nodes =
        (void *)(file.bytes + engine_header(&file)->sections[LM_SECTION_NODES].offset);
    nodes[3].value.item = 2; /* the last one */
    check_sums(&file, 1, (const float[]){0, 0, 34});
    nodes[3].value.item = 3;
    engine_seal(&file);
    CHECK(says(refusal(&file, true), "leaf 3: expected one of 3 items, found 3"));
    engine_file_close(&file);
    /* One base value is nobody's of three targets, as ONNX Runtime has it. */
    engine_make_tree(&file, 3, items, 3, base, 1);
    check_sums(&file, 0, (const float[]){1, 2, 0});
    check_sums(&file, 1, (const float[]){0, 2, 0});
    engine_file_close(&file);
}

/* Runs one row of a file with labels, all scores of which are equal. Returns its label. */
static int64_t label_of_equals(struct engine_file *file, uint32_t count) {
    struct lm_engine_view view;
    struct lm_engine engine;
    float input[3] = {0}, scores[3];
    int64_t label = 0;
    engine_header(file)->label_output = 1;
    engine_seal(file);
    CHECK(lm_engine_view_open(&view, file->bytes, file->count) == 0);
    CHECK(lm_engine_open_view(&engine, &view) == 0);
    lm_engine_run(&engine, 0, input, (void *[]){scores, &label}, 1, NULL);
    for (uint32_t s = 0; s < count; s++) CHECK(scores[s] == scores[0]);
    lm_engine_close(&engine);
    return label;
}

/* Of equal scores the first one is the label's, as ArgMax and ONNX Runtime's trees have it. */
static void test_ties(uint64_t *random) {
    static const struct lm_engine_item items[] = {{0, 2}, {2, 2}, {1 | LM_ITEM_LAST, 2}};
    uint32_t activation = LM_ACTIVATION_NONE, widths[] = {3, 3};
    struct engine_file file;
    CHECK_AT("ties");
    engine_make_dense(&file, widths, &activation, 1, random);
    struct lm_engine_place *floats = &engine_header(&file)->sections[LM_SECTION_FLOATS];
    memset(file.bytes + floats->offset, 0, floats->bytes);
    CHECK(label_of_equals(&file, 3) == 100);
    engine_file_close(&file);
    engine_make_tree(&file, 3, items, 3, NULL, 0);
    engine_header(&file)->head = LM_HEAD_CLASSIFIER;
    CHECK(label_of_equals(&file, 3) == 100);
    engine_file_close(&file);
}

/* Whatever is written over header and tables, with a digest that fits. */
static void test_tables(uint64_t *random) {
    struct engine_file file;
    uint32_t accepted = 0;
    engine_make_dense(&file, (const uint32_t[]){3, 20, 2},
                      (const uint32_t[]){LM_ACTIVATION_TANH, LM_ACTIVATION_SOFTMAX}, 2, random);
    for (uint32_t turn = 0; turn < 3000; turn++) {
        struct engine_file other = file;
        struct check_guard guard;
        struct lm_engine_view view;
        check_guard_open(&guard, file.count);
        other.bytes = check_guard_tail(&guard, lm_align_up(file.count, LM_ENGINE_ALIGN));
        memcpy(other.bytes, file.bytes, file.count);
        size_t tables = engine_header(&file)->tables_bytes;
        for (uint32_t change = 0; change <= check_below(random, 3); change++)
            other.bytes[48 + check_below(random, (uint32_t)tables - 48)] =
                (uint8_t)check_below(random, 256);
        if (lm_engine_view_open(&view, other.bytes, file.count) == 0) {
            struct lm_engine engine;
            float input[LM_ENGINE_WIDTH_MAX / 64] = {0}, scores[64];
            int64_t labels[2];
            void *outputs[2] = {scores, labels};
            uint32_t label_output = view.header->label_output;
            bool fits = view.header->score_output < 1 &&
                        (label_output == 1 || label_output == LM_ENGINE_NONE);
            if (fits && lm_engine_open_view(&engine, &view) == 0) {
                lm_engine_run(&engine, 0, input, outputs, 1, NULL);
                lm_engine_close(&engine);
                accepted++;
            }
        }
        check_guard_close(&guard);
    }
    CHECK(accepted > 0);
    engine_file_close(&file);
}

int main(void) {
    uint64_t random = check_seed();
    snprintf(path, sizeof path, "%s/engine", check_temporary_directory());
    test_header(&random);
    test_weights(&random);
    test_padding(&random);
    test_targets();
    test_ties(&random);
    test_tables(&random);
    CHECK(lm_engine_open(&(struct lm_engine){0}, "/nowhere/engine", false) != 0);
    return check_finish("test_engine_file");
}
