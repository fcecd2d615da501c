/* test_model_load.c: what is read of a model, from graphs written here: its tensors, outputs that
 * are not what the graph says, pictures, labels, and the sentence of every refusal. LUMEN_ORT names
 * libonnxruntime.so. */
#include "base/error.h"
#include "base/native_codec.h"
#include "formats/text_slots.h"
#include "models/binding.h"
#include "models/load.h"
#include "models/model.h"
#include "models/runner.h"
#include "models/sizes.h"
#include "onnx_graph.h"

static struct lm_ort ort;
static struct lm_model model;
static char path[128];

static lumen_model_config usual(void) {
    return (lumen_model_config){.name = "m",
                                .path = path,
                                .intra_op_threads = 1,
                                .max_output_bytes = 4096,
                                .scale = {1, 1, 1}};
}

/* Opens the graph that was begun last. */
static int open_with(const lumen_model_config *config) {
    graph_save(path);
    int code = lm_model_open(&model, &ort, config, 5, 1);
    if (!code) model.reply_text_bytes = lm_model_reply_text_bytes(&model);
    return code;
}

static void opens_with(const lumen_model_config *config) {
    int code = open_with(config);
    if (code) fprintf(stderr, "%s\n", lm_error_last());
    CHECK(code == 0);
}

static void opens(void) {
    lumen_model_config config = usual();
    opens_with(&config);
}

static void refuses_with(const lumen_model_config *config, int expected, const char *says) {
    int code = open_with(config);
    CHECK_AT("expected '%.50s' in: %.80s", says, code ? lm_error_last() : "nothing");
    CHECK(code == expected && strstr(lm_error_last(), says));
    CHECK(model.session_count == 0 && model.source.optimised.base == NULL && !model.labels.text);
}

static void refuses(const char *says) {
    lumen_model_config config = usual();
    refuses_with(&config, LUMEN_E_MODEL, says);
}

static void shut(void) {
    lm_model_close(&model, &ort);
}

/* y = x of this type and shape. */
static void begin_identity(int dtype, const char *dims) {
    graph_begin();
    graph_input("x", dtype, dims);
    graph_node("Identity", "x", "y");
    graph_output("y", dtype, dims);
}

static void is_tensor(const struct lm_tensor *tensor, const char *name, int dtype, uint32_t rank,
                      bool rows_free, size_t element_bytes, size_t row_bytes) {
    CHECK_AT("tensor %.40s: %.40s of %u dimensions, %zu bytes a row", name, tensor->name,
             tensor->rank, tensor->row_bytes);
    CHECK(strcmp(tensor->name, name) == 0 && tensor->dtype == dtype && tensor->rank == rank);
    CHECK(tensor->rows_free == rows_free && tensor->element_bytes == element_bytes);
    CHECK(tensor->row_bytes == row_bytes);
}

/* ---- signatures ---- */

/* Runs the open model on `rows`, whose inputs are filled by `fill`; the layout stays for a look. */
struct trial {
    _Alignas(64) uint8_t memory[1 << 16];
    struct lm_slot slot;
    struct lm_layout_lists lists;
    struct lm_layout layout;
    struct lm_binding binding;
    OrtValue *values[2 * LM_TENSORS_MAX];
};
static struct trial trial;

static void lay_out(uint32_t rows, uint8_t encoding) {
    size_t bytes = 0;
    memset(&trial, 0, sizeof trial);
    CHECK(lm_model_slot_bytes(&model, ROWS(rows), &bytes) && bytes <= sizeof trial.memory);
    trial.slot = (struct lm_slot){.base = trial.memory, .bytes = bytes};
    trial.layout = lm_layout_of(&trial.lists);
    lm_model_layout(&model, &trial.slot, encoding, ROWS(rows), &trial.layout);
}

static void run(uint32_t rows) {
    CHECK(lm_model_bind(&model, &ort, &trial.layout, ROWS(rows), &trial.binding, trial.values) ==
          0);
    CHECK(lm_model_run(&model, &ort, 0, trial.values) == 0);
    lm_model_unbind(&model, &ort, &trial.binding, trial.values);
}

/* Rows of two inputs, a fixed one between them, outputs in another order. */
static void several_tensors(void) {
    graph_begin();
    graph_input("x", ORT_FLOAT, "n,3");
    graph_input("k", ORT_INT64, "2");
    graph_input("b", ORT_FLOAT, "n,2,2");
    graph_node("Identity", "b", "z");
    graph_node("Neg", "x", "y");
    graph_node("Add", "k,k", "double");
    graph_output("z", ORT_FLOAT, "n,2,2");
    graph_output("double", ORT_INT64, "2");
    graph_output("y", ORT_FLOAT, "n,3");
    opens();
    CHECK(strcmp(model.name, "m") == 0 && model.index == 5 && model.session_count == 1);
    CHECK(model.input_count == 3 && model.output_count == 3);
    is_tensor(&model.inputs[0], "x", ORT_FLOAT, 2, true, 4, 12);
    is_tensor(&model.inputs[1], "k", ORT_INT64, 1, false, 8, 16);
    is_tensor(&model.inputs[2], "b", ORT_FLOAT, 3, true, 4, 16);
    is_tensor(&model.outputs[0], "z", ORT_FLOAT, 3, true, 4, 16);
    is_tensor(&model.outputs[1], "double", ORT_INT64, 1, false, 8, 16);
    is_tensor(&model.outputs[2], "y", ORT_FLOAT, 2, true, 4, 12);
    CHECK(!check_is_mapped(path)); /* its own form is what the sessions use, and it is no file */
    CHECK(model.rows_free && model.outputs_known && !model.input_plan.has_rgb8);
    CHECK(model.max_rows == LM_ROWS_MAX && model.max_output_bytes == 4096);
    for (uint32_t o = 0; o < 3; o++) CHECK(model.outputs[o].shape_known);
    size_t bytes = 0, text = lm_align_up(lm_model_reply_text_bytes(&model), LM_SLOT_ALIGN);
    CHECK(lm_model_payload_bytes(&model, LM_ENCODING_TENSORS, ROWS(10), &bytes));
    CHECK(bytes == 120 + 16 + 160);
    CHECK(lm_model_slot_bytes(&model, ROWS(10), &bytes));
    CHECK(bytes == (128 + 64 + 192) + (192 + 64 + 128) + text);
    CHECK(lm_model_shape_block_bytes(&model, ROWS(1)->free) ==
          4 * (1 + (1 + 2) + (1 + 1) + (1 + 3)));
    lay_out(2, LM_ENCODING_TENSORS);
    float *x = trial.layout.inputs[0], *b = trial.layout.inputs[2];
    int64_t *k = trial.layout.inputs[1], *twice = trial.layout.outputs[1];
    for (int i = 0; i < 6; i++) x[i] = (float)(i + 1);
    for (int i = 0; i < 8; i++) b[i] = (float)(100 + i);
    k[0] = -3, k[1] = 1ll << 40;
    run(2);
    CHECK(memcmp(trial.layout.outputs[0], b, 32) == 0);
    CHECK(twice[0] == -6 && twice[1] == 1ll << 41);
    for (int i = 0; i < 6; i++) CHECK(((float *)trial.layout.outputs[2])[i] == (float)-(i + 1));
    shut();
}

static void is_free(uint32_t at, const char *name, uint32_t max, bool by_default) {
    const struct lm_free_dim *dim = &model.free_dims[at];
    CHECK_AT("free dimension %u: %s, %u", at, dim->name, dim->max);
    CHECK(at < model.free_count && strcmp(dim->name, name) == 0);
    CHECK(dim->max == max && dim->by_default == by_default);
}

/* Two inputs share the length of their rows; what the graph does not name is free by itself. */
static void free_dimensions(void) {
    lumen_dim dims[] = {{"s", 40, 0}, {"n", 7, 0}};
    lumen_model_config config = usual();
    graph_begin();
    graph_input("ids", ORT_INT64, "n,s");
    graph_input("mask", ORT_INT64, "n,s");
    graph_input("x", ORT_FLOAT, "n,?,2");
    graph_node("Add", "ids,mask", "sum");
    graph_node("Neg", "x", "y");
    graph_output("sum", ORT_INT64, "n,s");
    graph_output("y", ORT_FLOAT, "n,?,2");
    opens();
    is_tensor(&model.inputs[0], "ids", ORT_INT64, 2, true, 8, 8);
    is_tensor(&model.inputs[2], "x", ORT_FLOAT, 3, true, 4, 8);
    CHECK(model.free_count == 2 && model.max_rows == LM_FREE_ROWS && model.source.shapes_vary);
    is_free(0, "s", LM_FREE_TOKENS, true);
    is_free(1, "x[1]", LM_FREE_ROW_BYTES / 8, true);
    CHECK(model.inputs[0].free[1] == 1 && model.inputs[1].free[1] == 1);
    CHECK(model.inputs[0].free[0] == 0 && model.inputs[2].free[1] == 2 && !model.inputs[2].free[2]);
    CHECK(model.outputs[0].shape_known && model.outputs[0].free[1] == 1);
    /* A free output dimension without a name is learnt by trying. */
    CHECK(model.outputs[1].shape_known && model.outputs[1].free[1] == 2 && model.outputs_known);
    is_tensor(&model.outputs[1], "y", ORT_FLOAT, 3, true, 4, 8);
    const struct lm_sizes sizes = {.rows = 3, .free = {5, 4}};
    size_t bytes = 0;
    CHECK(lm_model_payload_bytes(&model, LM_ENCODING_TENSORS, &sizes, &bytes));
    CHECK(bytes == 2 * (3 * 5 * 8) + 3 * 4 * 2 * 4);
    CHECK(lm_model_row_elements(&model, &sizes) == 5 + 5 + 8);
    int64_t shape[LM_RANK_MAX];
    lm_tensor_shape(&model.inputs[2], &sizes, shape);
    CHECK(shape[0] == 3 && shape[1] == 4 && shape[2] == 2);
    const struct lm_sizes largest = lm_model_largest(&model, 2);
    CHECK(largest.rows == 2 && largest.free[0] == LM_FREE_TOKENS && largest.free[2] == 0);
    shut();
    config.dims = dims;
    config.dim_count = 2;
    opens_with(&config);
    is_free(0, "s", 40, false);
    CHECK(model.max_rows == 7); /* the rows have a name too */
    shut();
    dims[1] = (lumen_dim){"s2", 3, 0};
    refuses_with(&config, LUMEN_E_INVALID,
                 "max_dims: expected names of free dimensions: 's', 'x[1]', 'n', found 's2'");
    dims[1] = (lumen_dim){"s", 0, 0};
    refuses_with(&config, LUMEN_E_INVALID, "dimension 's': expected 1 to 2147483647, found 0");
}

/* A size that the values decide follows from no other, though its name may be any. */
static void sizes_by_values(void) {
    graph_begin();
    graph_input("x", ORT_FLOAT, "n,s");
    graph_node("NonZero", "x", "y");
    graph_node("Neg", "x", "z");
    graph_output("y", ORT_INT64, "2,count");
    graph_output("z", ORT_FLOAT, "rows,length"); /* names that no input has */
    opens();
    CHECK(!model.outputs[0].shape_known && !model.outputs_known);
    CHECK(model.outputs[1].shape_known && model.outputs[1].free[1] == 1);
    is_tensor(&model.outputs[1], "z", ORT_FLOAT, 2, true, 4, 4);
    shut();
}

/* A fixed dimension is one, in outputs too. */
static void fixed_dimensions(void) {
    lumen_dim dims[] = {{"s", 40, 1}, {"n", 2, 1}};
    lumen_model_config config = usual();
    config.dims = dims;
    config.dim_count = 1;
    begin_identity(ORT_FLOAT, "n,s");
    opens_with(&config);
    is_tensor(&model.inputs[0], "x", ORT_FLOAT, 2, true, 4, 160);
    is_tensor(&model.outputs[0], "y", ORT_FLOAT, 2, true, 4, 160);
    CHECK(model.free_count == 0 && model.max_rows == LM_ROWS_MAX && !model.source.shapes_vary);
    shut();
    config.dim_count = 2;
    opens_with(&config);
    is_tensor(&model.inputs[0], "x", ORT_FLOAT, 2, false, 4, 320);
    shut();
    dims[1] = (lumen_dim){"other", 2, 1};
    refuses_with(&config, LUMEN_E_INVALID,
                 "fix_dims: expected names of free dimensions: 'n', found 'other'");
}

/* Which of the first dimensions are rows. */
static void rows_by_name(void) {
    static const struct {
        const char *first, *second;
        bool first_rows, second_rows;
        uint32_t free;
    } cases[] = {
        {"n,3", "n,3", true, true, 0},   {"?,3", "?,3", true, true, 0},
        {"?,3", "n,3", true, true, 0},   {"n,3", "m,3", false, false, 2},
        {"n,n", "m,3", false, false, 2}, {"n,3", "3,n", false, false, 1},
        {"2,n", "n,3", false, false, 1}, {"2,a", "2,b", false, false, 2},
        {"n,3", "2,m", false, false, 2}, {"n,3", "1,m", true, false, 1},
        {"n,3", "4,5", true, false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        graph_begin();
        graph_input("a", ORT_FLOAT, cases[i].first);
        graph_input("b", ORT_FLOAT, cases[i].second);
        graph_node("Identity", "a", "y");
        graph_node("Identity", "b", "z");
        graph_output("y", ORT_FLOAT, cases[i].first);
        graph_output("z", ORT_FLOAT, cases[i].second);
        opens();
        CHECK_AT("inputs [%s] and [%s]", cases[i].first, cases[i].second);
        CHECK(model.inputs[0].rows_free == cases[i].first_rows);
        CHECK(model.inputs[1].rows_free == cases[i].second_rows);
        CHECK(model.free_count == cases[i].free);
        shut();
    }
}

static void fixed_and_scalar(void) {
    lumen_model_config config = usual();
    config.max_rows = 9; /* of a model of fixed shape there is one row, whatever is asked for */
    begin_identity(ORT_DOUBLE, "4,3");
    opens_with(&config);
    is_tensor(&model.inputs[0], "x", ORT_DOUBLE, 2, false, 8, 96);
    is_tensor(&model.outputs[0], "y", ORT_DOUBLE, 2, false, 8, 96);
    CHECK(!model.rows_free && model.max_rows == 1 && model.outputs_known);
    shut();
    begin_identity(ORT_INT16, ""); /* of no dimensions: an output like this may be of any shape */
    opens();
    is_tensor(&model.inputs[0], "x", ORT_INT16, 0, false, 2, 2);
    CHECK(!model.outputs[0].shape_known && !model.outputs_known && model.max_rows == 1);
    shut();
    begin_identity(ORT_BOOL, "n,1,1,1,1,1,1,2"); /* as many dimensions as there may be */
    opens_with(&config);
    is_tensor(&model.inputs[0], "x", ORT_BOOL, 8, true, 1, 2);
    CHECK(model.max_rows == 9);
    shut();
}

/* ---- outputs that are not what the graph says ---- */

/* x[starts:1], of which only a Run knows how many rows there are: one, since starts is 0. */
static void begin_slice(const char *declared) {
    static const int64_t one[] = {1};
    graph_begin();
    graph_input("x", ORT_FLOAT, "n,3");
    graph_input("starts", ORT_INT64, "1");
    graph_constant("one", one, 1);
    graph_node("Slice", "x,starts,one", "y");
    graph_output("y", ORT_FLOAT, declared);
}

/* Takes rows of x five beyond those that are asked for. */
static void graph_beyond(const char *indices, const char *declared) {
    static const int64_t five[] = {5};
    graph_begin();
    graph_input("x", ORT_FLOAT, "n,3");
    graph_input("rows", ORT_INT64, indices);
    graph_constant("five", five, 1);
    graph_node("Add", "rows,five", "beyond");
    graph_node("Gather", "x,beyond", "y");
    graph_output("y", ORT_FLOAT, declared);
}

static void outputs_as_they_are(void) {
    static const int64_t pair[] = {7, 8}, axis[] = {0};
    graph_begin();
    graph_input("x", ORT_FLOAT, "n,3");
    graph_constant("pair", pair, 2);
    graph_constant("axis", axis, 1);
    graph_node("Neg", "x", "all");
    graph_node("Identity", "pair", "two");
    graph_node("ReduceSum", "x,axis", "one");
    graph_output("all", ORT_FLOAT, "1,3"); /* has the rows of x */
    graph_output("two", ORT_INT64, "2");   /* two whatever x has: as many as in the second trial */
    graph_output("one", ORT_FLOAT, "1,3");
    opens();
    is_tensor(&model.outputs[0], "all", ORT_FLOAT, 2, true, 4, 12);
    CHECK(model.outputs[0].wrapped_rows == 1 && model.outputs[0].dims[0] == -1);
    CHECK(lm_output_is_wrapped(&model.outputs[0], 1) &&
          !lm_output_is_wrapped(&model.outputs[0], 2));
    is_tensor(&model.outputs[1], "two", ORT_INT64, 1, false, 8, 16);
    CHECK(model.outputs[1].wrapped_rows == 0 && model.outputs[1].dims[0] == 2);
    is_tensor(&model.outputs[2], "one", ORT_FLOAT, 2, false, 4, 12);
    CHECK(model.outputs[2].wrapped_rows == 0 && model.outputs[2].dims[0] == 1);
    CHECK(model.outputs_known);
    for (uint32_t o = 0; o < 3; o++) CHECK(model.outputs[o].shape_known);
    CHECK(lm_output_is_wrapped(&model.outputs[1], 2) && lm_output_is_wrapped(&model.outputs[2], 3));
    shut();
}

static void outputs_that_are_declared_otherwise(void) {
    static const char *const untrue[] = {"n,3", "n,4", "5,3", "k,3"};
    for (size_t u = 0; u < sizeof untrue / sizeof untrue[0]; u++) {
        begin_slice(untrue[u]);
        opens();
        CHECK_AT("an output that is [1,3] and declared as [%s]", untrue[u]);
        CHECK(!model.outputs[0].shape_known && !model.outputs[0].rows_free);
        CHECK(!model.outputs_known && !lm_output_is_wrapped(&model.outputs[0], 1));
        shut();
    }
    for (uint32_t fixed = 0; fixed < 2;
         fixed++) { /* one of unknown shape beside one that is known */
        static const int64_t one[] = {1};
        graph_begin();
        graph_input("x", ORT_FLOAT, fixed ? "2,3" : "n,3");
        graph_input("starts", ORT_INT64, "1");
        graph_constant("one", one, 1);
        graph_node("Slice", "x,starts,one", "y");
        graph_node("Neg", "x", "z");
        graph_output("y", ORT_FLOAT, "k,3");
        graph_output("z", ORT_FLOAT, fixed ? "2,3" : "n,3");
        opens();
        CHECK_AT("one of two outputs is known, fixed %u", fixed);
        CHECK(!model.outputs[0].shape_known && model.outputs[1].shape_known);
        CHECK(!model.outputs_known && model.outputs[1].rows_free == !fixed);
        shut();
    }
    begin_slice("1,3");
    opens();
    CHECK(model.outputs[0].shape_known && !model.outputs[0].rows_free && model.outputs_known);
    shut();
}

static void outputs_that_one_trial_does_not_tell(void) {
    graph_begin(); /* as it says for one row, and of another width for two */
    graph_input("x", ORT_FLOAT, "n,3");
    graph_node("Transpose", "x", "turned");
    graph_node("MatMul", "x,turned", "y");
    graph_output("y", ORT_FLOAT, "n,1");
    opens();
    CHECK_AT("an output whose width are the rows");
    CHECK(!model.outputs[0].shape_known && !model.outputs[0].rows_free && !model.outputs_known);
    shut();

    graph_beyond("n", "n,3"); /* fails on zeros: the graph's word is taken */
    opens();
    is_tensor(&model.outputs[0], "y", ORT_FLOAT, 2, true, 4, 12);
    CHECK(model.outputs[0].shape_known && model.outputs_known);
    shut();
}

/* ---- pictures ---- */

static void pictures(void) {
    static const struct {
        int dtype;
        const char *dims;
        uint32_t height, width; /* 0: no picture */
        enum lm_pixel_order layout;
    } cases[] = {
        {ORT_FLOAT, "n,3,5,7", 5, 7, LM_LAYOUT_NCHW},
        {ORT_UINT8, "n,5,7,3", 5, 7, LM_LAYOUT_NHWC},
        {ORT_UINT8, "1,3,5,7", 5, 7, LM_LAYOUT_NCHW},
        {ORT_FLOAT, "n,3,5,3", 5, 3, LM_LAYOUT_NCHW}, /* either: planar */
        {ORT_FLOAT, "n,3,65535,1", 65535, 1, LM_LAYOUT_NCHW},
        {ORT_UINT8, "n,1,65535,3", 1, 65535, LM_LAYOUT_NHWC},
        {ORT_UINT8, "n,3,65536,1", 0, 0, 0},
        {ORT_UINT8, "n,1,65536,3", 0, 0, 0},
        {ORT_FLOAT, "2,3,5,7", 0, 0, 0}, /* two that must come together */
        {ORT_FLOAT, "n,4,5,7", 0, 0, 0},
        {ORT_FLOAT, "n,3,5", 0, 0, 0},
        {ORT_FLOAT, "n,1,3,5,7", 0, 0, 0},
        {ORT_INT32, "n,3,5,7", 0, 0, 0},
        {ORT_INT8, "n,3,5,7", 0, 0, 0},
    };
    lumen_model_config config = usual();
    config.channel_order = LUMEN_CHANNELS_BGR;
    for (uint32_t c = 0; c < 3; c++) {
        config.mean[c] = (float)(c + 1);
        config.scale[c] = (float)(10 * c + 10);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin_identity(cases[i].dtype, cases[i].dims);
        opens_with(&config);
        CHECK_AT("[%s] of type %d", cases[i].dims, cases[i].dtype);
        CHECK(model.input_plan.has_rgb8 == (cases[i].height > 0));
        CHECK(model.channel_order == LUMEN_CHANNELS_BGR);
        if (model.input_plan.has_rgb8) {
            const struct lm_rgb8_plan *plan = &model.input_plan.rgb8;
            CHECK(plan->height == cases[i].height && plan->width == cases[i].width);
            CHECK(plan->layout == cases[i].layout && plan->dtype == cases[i].dtype);
            for (uint32_t c = 0; c < 3; c++)
                CHECK(plan->source[c] == 2 - c && plan->mean[c] == config.mean[c] &&
                      plan->scale[c] == config.scale[c]);
        }
        shut();
    }
    graph_begin(); /* a picture beside something else */
    graph_input("x", ORT_FLOAT, "n,3,5,7");
    graph_input("k", ORT_FLOAT, "1");
    graph_node("Add", "x,k", "y");
    graph_output("y", ORT_FLOAT, "n,3,5,7");
    opens();
    CHECK(!model.input_plan.has_rgb8);
    shut();
}

/* The pixels lie behind the tensors, which are where they are without them. */
static void room_for_pixels(void) {
    size_t bytes = 0, text = 0;
    begin_identity(ORT_FLOAT, "n,3,5,7");
    opens();
    CHECK_AT("room for pixels");
    CHECK(lm_model_payload_bytes(&model, LM_ENCODING_RGB8, ROWS(4), &bytes) && bytes == 4 * 105);
    CHECK(lm_model_payload_bytes(&model, LM_ENCODING_TENSORS, ROWS(4), &bytes) && bytes == 4 * 420);
    text = lm_align_up(lm_model_reply_text_bytes(&model), LM_SLOT_ALIGN);
    CHECK(lm_model_slot_bytes(&model, ROWS(4), &bytes) && bytes == 1728 + 1728 + 448 + text);
    lay_out(4, LM_ENCODING_TENSORS);
    uint8_t *in = trial.layout.inputs[0], *out = trial.layout.outputs[0];
    CHECK(in == trial.memory && out == in + 1728 && !trial.layout.raw);
    lay_out(4, LM_ENCODING_RGB8);
    CHECK(trial.layout.inputs[0] == in && trial.layout.outputs[0] == out);
    CHECK(trial.layout.raw == out + 1728 && trial.slot.used == 1728 + 1728 + 448);
    shut();
}

/* ---- labels ---- */

static void labels(void) {
    static const struct {
        const char *first, *second; /* the shapes of the outputs; the second may be missing */
        uint32_t lines;
        const char *says; /* NULL: fine */
    } cases[] = {
        {"n,2,5", NULL, 5, NULL},
        {"n,2,5", NULL, 10, NULL},
        {"n,2,5", NULL, 2, "labels: expected a line for each of 10 classes, found 2"},
        {"n,5", "n,3", 5, NULL},
        {"n,5", "n,3", 3, NULL},
        {"n,5", "n,3", 4, "labels: expected a line for each of 5 classes, found 4"},
        {"n,3", "n,5", 15, "labels: expected a line for each of 5 classes, found 15"},
        {"n", NULL, 1, NULL},
        {"n", NULL, 2, "each of 1 classes, found 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lumen_model_config config = usual();
        graph_begin();
        graph_input("a", ORT_FLOAT, cases[i].first);
        graph_node("Identity", "a", "y");
        graph_output("y", ORT_FLOAT, cases[i].first);
        if (cases[i].second) {
            graph_input("b", ORT_FLOAT, cases[i].second);
            graph_node("Identity", "b", "z");
            graph_output("z", ORT_FLOAT, cases[i].second);
        }
        config.labels = "1\n2\n3\n4\n5\n6\n7\n8\n9\n\n\n\n\n\n\n";
        config.label_bytes = cases[i].lines < 10 ? 2 * cases[i].lines : 9 + cases[i].lines;
        CHECK_AT("%u labels of an output [%s]", cases[i].lines, cases[i].first);
        if (cases[i].says) {
            refuses_with(&config, LUMEN_E_MODEL, cases[i].says);
            continue;
        }
        opens_with(&config);
        CHECK(model.labels.count == cases[i].lines);
        shut();
    }
    lumen_model_config config = usual();
    config.labels = "1\n2\n3\n4\n";
    config.label_bytes = 8;
    begin_slice("k,3"); /* how many classes there are is known to a Run alone */
    opens_with(&config);
    shut();
    config.labels = "a\n\x01\n";
    config.label_bytes = 4;
    refuses_with(&config, LUMEN_E_INVALID, "labels, line 2");
}

/* ---- inputs without a shape in the graph ---- */

static void has_shape(const struct lm_tensor *tensor, const struct lm_sizes *sizes, uint32_t rank,
                      const int64_t *dims, size_t bytes) {
    int64_t found[LM_RANK_MAX];
    size_t found_bytes = 0;
    CHECK_AT("'%.32s' of rank %u", tensor->name, rank);
    CHECK(lm_tensor_shape(tensor, sizes, found) == rank);
    CHECK(rank == 0 || memcmp(found, dims, rank * sizeof *dims) == 0);
    CHECK(lm_tensor_bytes(tensor, sizes, &found_bytes) && found_bytes == bytes);
}

/* A scalar keeps its shape; the others get an equal part of what the named dimension leaves. */
static void any_rank(void) {
    lumen_dim dims[] = {{"s", 40, 0}, {"b[...]", 100, 0}};
    lumen_model_config config = usual();
    graph_begin();
    graph_input("a", ORT_DOUBLE, NULL);
    graph_input("ids", ORT_INT64, "n,s");
    graph_input("b", ORT_UINT8, NULL);
    graph_input("scalar", ORT_FLOAT, "");
    graph_node("Neg", "a", "minus");
    graph_node("Identity", "ids", "same");
    graph_node("Identity", "b", "list");
    graph_output("minus", ORT_DOUBLE, NULL);
    graph_output("same", ORT_INT64, "n,s");
    graph_output("list", ORT_UINT8, "?"); /* b itself, if it is a list */
    config.dims = dims;
    config.dim_count = 2;
    config.max_output_bytes = 0; /* the default */
    opens_with(&config);
    is_free(0, "s", 40, false);
    is_free(1, "a[...]", LM_FREE_ROW_BYTES / 8, true);
    is_free(2, "b[...]", 100, false);
    const struct lm_tensor *a = &model.inputs[0], *b = &model.inputs[2];
    CHECK(model.any_rank && model.free_count == 3 && model.rows_free && model.source.shapes_vary);
    CHECK(a->any_rank && b->any_rank && !model.inputs[1].any_rank && !model.inputs[3].any_rank);
    CHECK(a->rank == 3 && b->rank == 3 && model.inputs[3].rank == 0);
    CHECK(!model.outputs[0].shape_known && model.outputs[1].shape_known);
    CHECK(!model.outputs[2].shape_known); /* as long as b was, but b may be no list */
    const struct lm_sizes sizes = {.rows = 2, .free = {5, 2, 3, 0, 4, 1, 6}};
    has_shape(a, &sizes, 2, (int64_t[]){2, 3}, 48);
    has_shape(b, &sizes, 3, (int64_t[]){4, 1, 6}, 24);
    has_shape(&model.inputs[1], &sizes, 2, (int64_t[]){2, 5}, 80);
    CHECK(lm_model_row_elements(&model, &sizes) == 6 + 5 + 24 + 1);
    CHECK(lm_model_shape_block_bytes(&model, sizes.free) == 4 * (1 + 3 + 3 + 4 + 1));
    const struct lm_sizes scalars = {.rows = 1, .free = {1}};
    has_shape(a, &scalars, 0, NULL, 8);
    has_shape(b, &scalars, 0, NULL, 1);
    const struct lm_sizes largest = lm_model_largest(&model, 1);
    has_shape(b, &largest, 1, (int64_t[]){100}, 100);
    has_shape(a, &largest, 1, (int64_t[]){LM_FREE_ROW_BYTES / 8}, LM_FREE_ROW_BYTES);
    const struct lm_sizes smallest = lm_model_smallest(&model, 1);
    has_shape(b, &smallest, 1, (int64_t[]){1}, 1);
    /* By default an output of unknown shape may have as many elements as all inputs. */
    CHECK(lm_model_unknown_bytes(&model, &model.outputs[0], &sizes) == LM_OUTPUT_BYTES);
    CHECK(lm_model_unknown_bytes(&model, &model.outputs[0], &largest) ==
          (LM_FREE_ROW_BYTES / 8 + 40 + 100 + 1) * (size_t)8);
    shut();
    dims[1].name = "b";
    refuses_with(
        &config, LUMEN_E_INVALID,
        "max_dims: expected names of free dimensions: 's', 'a[...]', 'b[...]', 'n', found");
}

/* The room of a slot for JSON follows from the text: nobody knows the shape in it. */
static void any_rank_as_text(void) {
    size_t little = 0, much = 0, more = 0;
    graph_begin();
    graph_input("a", ORT_FLOAT, NULL);
    graph_input("b", ORT_FLOAT, NULL);
    graph_node("Add", "a,b", "y");
    graph_output("y", ORT_FLOAT, NULL);
    opens();
    CHECK(lm_model_text_slot_bytes(&model, 1 << 10, &little));
    CHECK(lm_model_text_slot_bytes(&model, 1 << 20, &much));
    CHECK(lm_model_text_slot_bytes(&model, 64 << 20, &more));
    /* A number takes at least 2 bytes of text and 4 of memory; all may be of one input. */
    CHECK(much - little >= 2 * 4 * (size_t)((1 << 20) - (1 << 10)) / 2);
    CHECK(little < much && more - much >= 2 * LM_FREE_ROW_BYTES - (4 << 20) && little < (16 << 20));
    shut();
}

/* ---- refusals ---- */

static void refused_shapes(void) {
    static const struct {
        const char *dims, *says;
    } cases[] = {
        {"0,3", "input 'x': dimension 0 is 0"},
        {"n,3,0", "input 'x': dimension 2 is 0"},
        {"n,1,1,1,1,1,1,1,2", "tensor 'x': expected at most 8 dimensions, found 9"},
        {"n,4611686018427387904", "input 'x': its size overflows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        graph_begin();
        graph_input("first", ORT_FLOAT, "n,3"); /* which is fine */
        graph_input("x", ORT_FLOAT, cases[i].dims);
        graph_input("scalar", ORT_FLOAT, "");
        graph_node("Identity", "first", "y");
        graph_node("Identity", "x", "z");
        graph_output("y", ORT_FLOAT, "n,3");
        graph_output("z", ORT_FLOAT, NULL);
        refuses(cases[i].says);
    }
    const char *const eight[] = {"a,b,c", "d,e,f", "g,h", "i"};
    for (uint32_t rest = 0; rest < 2;
         rest++) { /* one more free dimension, or an input of any rank */
        graph_begin();
        graph_input("first", ORT_FLOAT, "n,3");
        for (uint32_t i = 0; i < 4 - rest; i++) {
            char name[2] = {(char)('p' + i), 0}, dims[16];
            snprintf(dims, sizeof dims, "n,%s", eight[i]);
            graph_input(name, ORT_FLOAT, dims);
        }
        if (rest) graph_input("x", ORT_FLOAT, NULL);
        graph_node("Identity", "first", "y");
        graph_output("y", ORT_FLOAT, "n,3");
        refuses(
            rest ? "input 'x' has no shape in the graph: 1 such inputs and 8 free dimensions are "
                   "more than 8 in all"
                 : "input 's': dimension 1 is free, and 8 others of other names are: expected at "
                   "most 8 beside the rows; give one a size with fix_dims");
    }
    char said[192];
    snprintf(said, sizeof said, "model 'm' (%s) cannot be served: input 'x': dim", path);
    begin_identity(ORT_FLOAT, "n,0");
    refuses(said);
}

static void refused_types(void) {
    static struct graph_message type, inner, outer;
    static const struct {
        int dtype;
        const char *says;
    } odd[] = {{14, "found complex64 numbers"},  {15, "found complex128 numbers"},
               {21, "found uint4 numbers"},      {22, "found int4 numbers"},
               {23, "found float4e2m1 numbers"}, {99, "found ONNX element type 99"}};
    static const struct {
        int dtype;
        const char *says;
    } cases[] = {
        {17,
         "input 'u': expected numbers, bools or strings, found float8e4m3fn numbers (cast them"},
        {18, "float8e4m3fnuz numbers (cast them"},
        {19, "float8e5m2 numbers (cast them"},
        {20, "float8e5m2fnuz numbers (cast them"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin_identity(ORT_FLOAT, "n,3");
        graph_input("u", cases[i].dtype, "2"); /* used by nobody */
        refuses(cases[i].says);
    }
    /* Some versions of the runtime refuse these themselves. */
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        begin_identity(ORT_FLOAT, "n,3");
        graph_input("u", odd[i].dtype, "2");
        refuses("cannot be served: ");
        CHECK(strstr(lm_error_last(), odd[i].says) || strstr(lm_error_last(), "ONNX Runtime says"));
    }
    CHECK(!check_is_mapped(path));
    /* Types other than tensors: a sequence (field 4) of, a map (5) from whole numbers to floats. */
    for (uint32_t field = 4; field <= 5; field++) {
        graph_put_tensor_type(&inner, ORT_FLOAT, NULL);
        outer.used = type.used = 0;
        if (field == 5) graph_put_number(&outer, 1, 7);
        graph_put(&outer, field == 5 ? 2 : 1, &inner);
        graph_put(&type, field, &outer);
        begin_identity(ORT_FLOAT, "n,3");
        graph_put_value(11, "u", &type);
        refuses(field == 4
                    ? "input 'u': expected a tensor, found a sequence (scikit-learn's "
                      "classifiers: install onnx, or convert them with options={'zipmap': False})"
                    : "input 'u': expected a tensor, found a map (scikit-learn's");
    }
    graph_begin();
    graph_input("x", ORT_FLOAT, "4");
    graph_node("SequenceConstruct", "x", "y");
    outer.used = type.used = 0;
    graph_put(&outer, 1, &inner);
    graph_put(&type, 4, &outer);
    graph_put_value(12, "y", &type);
    refuses("output 'y': expected a tensor, found a sequence");
}

static void refused_counts_and_names(void) {
    char name[GRAPH_NAME_BYTES_MAX];
    const uint32_t most = LM_TENSORS_MAX;
    for (uint32_t inputs = most; inputs <= most + 1; inputs++) {
        for (uint32_t outputs = most; outputs <= most + 1; outputs++) {
            graph_begin();
            for (uint32_t i = 0; i < inputs; i++) {
                snprintf(name, sizeof name, "x%u", i);
                graph_input(name, ORT_FLOAT, "1");
            }
            for (uint32_t o = 0; o < outputs; o++) {
                snprintf(name, sizeof name, "y%u", o);
                graph_node("Neg", "x0", name);
                graph_output(name, ORT_FLOAT, "1");
            }
            snprintf(name, sizeof name,
                     "expected 1 to 256 inputs and as many outputs, found %u and %u", inputs,
                     outputs);
            if (inputs + outputs > 2 * most) {
                refuses(name);
                continue;
            }
            opens();
            CHECK(model.input_count == most && model.output_count == most);
            CHECK(strcmp(model.input_names[most - 1], "x255") == 0);
            CHECK(strcmp(model.output_names[most - 1], "y255") == 0);
            shut();
        }
    }
    for (size_t bytes = 255; bytes <= 256; bytes++) {
        memset(name, 'x', bytes);
        name[bytes] = '\0';
        graph_begin();
        graph_input(name, ORT_FLOAT, "1");
        graph_node("Identity", name, "y");
        graph_output("y", ORT_FLOAT, "1");
        if (bytes == 256) {
            refuses("tensor name of 256 bytes, expected at most 255");
            continue;
        }
        opens();
        CHECK(strcmp(model.inputs[0].name, name) == 0);
        shut();
    }
}

static void limits_of_settings(void) {
    char name[LM_NAME_BYTES_MAX];
    lumen_model_config config = usual();
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    config.name = name;
    begin_identity(ORT_FLOAT, "n,3");
    opens_with(&config);
    CHECK(strcmp(model.name, name) == 0);
    shut();
    config = usual();
    config.intra_op_threads = 256;
    begin_identity(ORT_FLOAT, "n,3");
    opens_with(&config);
    shut();
}

/* A path that is too long for the cache costs the cache, one for the model is told. */
static void long_paths(void) {
    static char long_path[5000], cache[4200];
    lumen_model_config config = usual();
    begin_identity(ORT_FLOAT, "n,3");
    memset(cache, 'c', sizeof cache - 1);
    config.cache_path = cache;
    opens_with(&config);
    CHECK_AT("long paths");
    CHECK(!model.source.from_cache && model.source.optimised.bytes > 0);
    shut();
    struct lm_ort_source source;
    config = usual();
    config.path = long_path;
    for (size_t bytes = 4095; bytes <= 4096; bytes++) {
        memset(long_path, '/', bytes); /* leads to the root, a directory, or is refused before */
        CHECK(lm_ort_source_open(&source, &ort, &config) ==
              (bytes == 4095 ? LUMEN_E_IO : LUMEN_E_MODEL));
        CHECK((strstr(lm_error_last(), "model path too long: ///") != NULL) == (bytes == 4096));
    }
}

/* Values that do not fit are told apart from a failure of the model. */
static void unfit_values(void) {
    graph_beyond("1", "1,3");
    opens();
    lay_out(1, LM_ENCODING_TENSORS);
    CHECK_AT("an index that is not there");
    CHECK(lm_model_bind(&model, &ort, &trial.layout, ROWS(1), &trial.binding, trial.values) == 0);
    CHECK(lm_model_run(&model, &ort, 0, trial.values) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "inference: ONNX Runtime says: "));
    ((int64_t *)trial.layout.inputs[1])[0] = -5;
    CHECK(lm_model_run(&model, &ort, 0, trial.values) == 0);
    lm_model_unbind(&model, &ort, &trial.binding, trial.values);
    shut();
}

int main(void) {
    const char *library = getenv("LUMEN_ORT");
    if (CHECK_UNDER_TSAN)
        check_skip("test_model_load", "ONNX Runtime is not built for ThreadSanitizer");
    if (!library || !library[0])
        check_skip("test_model_load", "LUMEN_ORT does not name libonnxruntime.so");
    snprintf(path, sizeof path, "%s/m.onnx", check_temporary_directory());
    CHECK(lm_ort_open(&ort, library) == 0);
    several_tensors();
    free_dimensions();
    sizes_by_values();
    fixed_dimensions();
    rows_by_name();
    fixed_and_scalar();
    outputs_as_they_are();
    outputs_that_are_declared_otherwise();
    outputs_that_one_trial_does_not_tell();
    pictures();
    room_for_pixels();
    labels();
    any_rank();
    any_rank_as_text();
    refused_shapes();
    refused_types();
    refused_counts_and_names();
    limits_of_settings();
    long_paths();
    unfit_values();
    lm_ort_close(&ort);
    return check_finish("test_model_load");
}
