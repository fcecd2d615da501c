/* test_step_experts.c: which expert a step of an ensemble runs by the length of its strings: of the
 * row that has most, and a row's strings count together. LUMEN_ORT names libonnxruntime.so. */
#include "base/error.h"
#include "check.h"
#include "models/model.h"
#include "models/step_experts.h"

enum { WIDTH = 2, STRINGS_MAX = 6 };

static struct lm_ort ort;

/* So many rows of two strings of these lengths. Returns the expert, or LUMEN_E_*. */
static int chosen(const uint32_t *lengths, uint32_t rows) {
    static struct lm_tensor input = {.name = "x",
                                     .dtype = ORT_STRING,
                                     .rank = 2,
                                     .dims = {-1, WIDTH},
                                     .rows_free = true,
                                     .shape_known = true,
                                     .element_bytes = 4,
                                     .row_bytes = 4 * WIDTH};
    static struct lm_model model = {
        .inputs = &input,
        .input_count = 1,
        .experts = {.count = 3, .feature = LUMEN_FEATURE_LENGTH, .bounds = {5, 10}}};
    const struct lm_step step = {.model = &model};
    const int64_t shape[] = {rows, WIDTH};
    uint8_t wire[STRINGS_MAX * 32] = {0};
    size_t at = 0;
    uint32_t expert = UINT32_MAX;
    struct lm_ort_growth growth = {0};
    OrtValue *value = lm_ort_strings_open(&ort, shape, 2);
    CHECK(value && rows * WIDTH <= STRINGS_MAX);
    for (uint32_t s = 0; s < rows * WIDTH; s++) {
        memcpy(wire + at, &lengths[s], sizeof lengths[s]);
        at += sizeof lengths[s] + lengths[s];
    }
    if (rows) CHECK(lm_ort_strings_fill(&ort, value, 0, rows * WIDTH, wire, &growth) == 0);
    const OrtValue *const inputs[] = {value};
    const int code = lm_step_choose(&step, &ort, inputs, &expert);
    lm_ort_value_close(&ort, value);
    return code ? code : (int)expert;
}

int main(void) {
    const char *library = getenv("LUMEN_ORT");
    if (!library) check_skip("test_step_experts", "LUMEN_ORT does not name libonnxruntime.so");
    CHECK(lm_ort_open(&ort, library) == 0);
    CHECK(chosen((uint32_t[]){2, 2}, 1) == 0 && chosen((uint32_t[]){3, 2}, 1) == 1);
    CHECK(chosen((uint32_t[]){0, 9}, 1) == 1 && chosen((uint32_t[]){9, 1}, 1) == 2);
    /* Several short rows are no long one, and the longest may stand anywhere. */
    CHECK(chosen((uint32_t[]){4, 0, 2, 2, 0, 4}, 3) == 0);
    CHECK(chosen((uint32_t[]){8, 8, 1, 0, 0, 1}, 3) == 2);
    CHECK(chosen((uint32_t[]){1, 0, 8, 8, 0, 1}, 3) == 2);
    CHECK(chosen((uint32_t[]){1, 0, 0, 1, 8, 8}, 3) == 2);
    CHECK(chosen(NULL, 0) == 0); /* a step may make no rows */
    lm_ort_close(&ort);
    return check_finish("test_step_experts");
}
