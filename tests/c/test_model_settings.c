/* test_model_settings.c: what settings say of a model's tensors: requests for its warm-up, the size
 * of a row that comes as bytes alone, tensors as a configuration file declares them. The models are
 * made by hand: nothing is run. */
#include "base/error.h"
#include "check.h"
#include "models/model.h"
#include "models/sizes.h"
#include "models/warmup.h"

static struct lm_tensor inputs[2] = {{.name = "a",
                                      .dtype = ORT_FLOAT,
                                      .rank = 2,
                                      .dims = {-1, 3},
                                      .rows_free = true,
                                      .shape_known = true,
                                      .element_bytes = 4,
                                      .row_bytes = 12},
                                     {.name = "b",
                                      .dtype = ORT_INT64,
                                      .rank = 1,
                                      .dims = {2},
                                      .shape_known = true,
                                      .element_bytes = 8,
                                      .row_bytes = 16}};

/* ---- warm-up requests ---- */

static int open_with(const lumen_warmup_tensor *tensors, uint32_t count) {
    static struct lm_model model;
    const lumen_warmup warmup = {
        .name = "first", .inputs = tensors, .input_count = count, .count = 1};
    const lumen_model_config config = {.warmups = &warmup, .warmup_count = 1};
    model = (struct lm_model){.inputs = inputs, .input_count = 2};
    const int code = lm_warmups_open(&model, &config);
    lm_warmups_close(&model);
    return code;
}

static void refuses(const lumen_warmup_tensor *tensors, uint32_t count, const char *says) {
    const int code = open_with(tensors, count);
    CHECK_AT("expected '%.60s' in: %.80s", says, code ? lm_error_last() : "nothing");
    CHECK(code < 0 && strncmp(lm_error_last(), "warm-up request 'first': ", 25) == 0);
    CHECK(strstr(lm_error_last(), says));
}

/* Each input once, of its shape, with as many bytes as that has. */
static void warmups(void) {
    static const uint32_t rows[] = {5, 3}, wrong[] = {5, 4}, two[] = {2};
    static const char bytes[17] = "";
    lumen_warmup_tensor tensors[] = {
        {.name = "a", .shape = rows, .rank = 2, .fill = LUMEN_FILL_RANDOM},
        {.name = "b",
         .shape = two,
         .rank = 1,
         .fill = LUMEN_FILL_BYTES,
         .data = bytes,
         .bytes = 16},
        {.name = "a", .shape = rows, .rank = 2}};
    CHECK(open_with(tensors, 2) == 0);
    refuses(tensors, 1, "expected all inputs, found none for 'b'");
    refuses(tensors, 3, "expected an input of the model, once, found 'a'");
    tensors[2].name = "c";
    refuses(tensors, 3, "expected an input of the model, once, found 'c'");
    for (uint64_t count = 15; count <= 17; count += 2) {
        tensors[1].bytes = count;
        refuses(tensors, 2, "input 'b': expected a file of 16 bytes for its shape, found 1");
    }
    tensors[1].fill = LUMEN_FILL_BYTES + 1;
    refuses(tensors, 2, "input 'b': fill: expected 0 to 2, found 3");
    tensors[0].shape = wrong;
    refuses(tensors, 2, "one of [-1, 3]");
}

/* ---- a row that comes as bytes alone ---- */

/* Its size follows from them, from 1 to the largest. */
static void rows_of_bytes(void) {
    static struct lm_tensor pairs = {.name = "x",
                                     .rank = 3,
                                     .dims = {-1, -1, 2},
                                     .free = {0, 1, 0},
                                     .rows_free = true,
                                     .shape_known = true,
                                     .varies = true,
                                     .element_bytes = 4,
                                     .row_bytes = 8};
    static struct lm_model model = {.inputs = &pairs, .input_count = 1, .free_count = 1};
    struct lm_sizes sizes;
    model.free_dims[0].max = 40;
    for (uint32_t size = 1; size <= 40; size++) {
        CHECK_AT("size %u", size);
        CHECK(lm_model_row_of_bytes(&model, size * 8, &sizes));
        CHECK(sizes.rows == 1 && sizes.free[0] == size);
        CHECK(!lm_model_row_of_bytes(&model, size * 8 + 4, &sizes));
    }
    CHECK(!lm_model_row_of_bytes(&model, 0, &sizes));
    CHECK(!lm_model_row_of_bytes(&model, 41 * 8, &sizes));
    model.input_count = 2; /* which of them has how many is not known */
    CHECK(!lm_model_row_of_bytes(&model, 8, &sizes));
}

/* ---- declared tensors ---- */

static void declared_tensors(void) {
    static const int64_t shape[] = {-1, 4};
    lumen_declared tensors[] = {
        {.name = "x", .no_rows = 1, .format = LUMEN_FORMAT_NHWC},
        {.name = "y", .is_output = 1, .label_file = "labels.txt", .shape = shape, .rank = 2},
        {.name = "x", .is_output = 1}};
    const lumen_model_config config = {
        .file_name = "model.onnx", .declared = tensors, .declared_count = 3};
    struct lm_declared declared;
    CHECK(lm_declared_open(&declared, &config) == 0);
    CHECK(declared.count == 3 && declared.no_rows && strcmp(declared.file_name, "model.onnx") == 0);
    const struct lm_declared_tensor *x = lm_declared_find(&declared, "x", false);
    const struct lm_declared_tensor *y = lm_declared_find(&declared, "y", true);
    CHECK(x == &declared.tensors[0] && x->format == LUMEN_FORMAT_NHWC && !x->client);
    CHECK(y == &declared.tensors[1] && strcmp(y->label_file, "labels.txt") == 0 && y->client);
    CHECK(y->rank == 2 && y->dims[0] == -1 && y->dims[1] == 4);
    CHECK(lm_declared_find(&declared, "x", true) == &declared.tensors[2]);
    CHECK(!lm_declared_find(&declared, "y", false));
    lm_declared_close(&declared);
    CHECK(declared.count == 0 && !declared.tensors);
    tensors[2].format = LUMEN_FORMAT_NCHW + 1;
    CHECK(lm_declared_open(&declared, &config) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "format of 'x': expected 0 to 2, found 3"));
}

int main(void) {
    warmups();
    rows_of_bytes();
    declared_tensors();
    return check_finish("test_model_settings");
}
