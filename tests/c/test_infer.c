/* test_infer.c: an output whose shape a Run alone tells has as many rows as its batch, no fewer and
 * no more: each request is given its own. LUMEN_ORT names libonnxruntime.so. */
#include "base/error.h"
#include "check.h"
#include "work/infer.h"

int main(void) {
    const char *library = getenv("LUMEN_ORT");
    static struct lm_shared shared;
    static float memory[12];
    const struct lm_tensor tensor = {.name = "y", .dtype = ORT_FLOAT};
    const int64_t shape[] = {3, 4};
    if (!library) check_skip("test_infer", "LUMEN_ORT does not name libonnxruntime.so");
    CHECK(lm_ort_open(&shared.ort, library) == 0);
    OrtValue *value = lm_ort_wrap(&shared.ort, memory, sizeof memory, shape, 2, ORT_FLOAT);
    CHECK(value && lm_infer_check_rows(&shared, &tensor, value, 3) == 0);
    for (uint32_t rows = 1; rows <= 5; rows++) {
        if (rows == 3) continue;
        char says[64];
        CHECK_AT("%u rows", rows);
        snprintf(says, sizeof says, "output 'y': expected %u rows, found 3", rows);
        CHECK(lm_infer_check_rows(&shared, &tensor, value, rows) == LUMEN_E_ORT);
        CHECK(strcmp(lm_error_last(), says) == 0);
    }
    lm_ort_value_close(&shared.ort, value);
    /* A number alone has none. */
    value = lm_ort_wrap(&shared.ort, memory, sizeof *memory, shape, 0, ORT_FLOAT);
    CHECK(value && lm_infer_check_rows(&shared, &tensor, value, 1) == LUMEN_E_ORT);
    CHECK(strstr(lm_error_last(), "expected 1 rows, found 0"));
    lm_ort_value_close(&shared.ort, value);
    lm_ort_close(&shared.ort);
    return check_finish("test_infer");
}
