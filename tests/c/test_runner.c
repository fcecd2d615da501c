/* test_runner.c: a Run with an input that the graph has a value for, as often as one asks: the
 * request's value is used, and what is wrapped for one Run is let go after it, which
 * LeakSanitizer sees. LUMEN_ORT names libonnxruntime.so. */
#include "base/error.h"
#include "models/load.h"
#include "models/model.h"
#include "models/runner.h"
#include "onnx_graph.h"

int main(void) {
    const char *library = getenv("LUMEN_ORT");
    static const int64_t ten[] = {10};
    static struct lm_model model;
    struct lm_ort ort;
    char path[128];
    int64_t x[] = {1, 2, 3}, k[] = {100};
    void *inputs[] = {x, k};
    if (!library) check_skip("test_runner", "LUMEN_ORT does not name libonnxruntime.so");
    snprintf(path, sizeof path, "%s/optional.onnx", check_temporary_directory());
    graph_begin();
    graph_input("x", ORT_INT64, "3");
    graph_input("k", ORT_INT64, "1");
    graph_constant("k", ten, 1);
    graph_node("Add", "x,k", "y");
    graph_output("y", ORT_INT64, "3");
    graph_save(path);
    const lumen_model_config config = {.name = "m",
                                       .path = path,
                                       .intra_op_threads = 1,
                                       .max_output_bytes = 4096,
                                       .scale = {1, 1, 1}};
    CHECK(lm_ort_open(&ort, library) == 0 && lm_model_open(&model, &ort, &config, 0, 1) == 0);
    CHECK(model.input_count == 1 && model.optional_count == 1);
    for (uint32_t times = 0; times < 6; times++) {
        OrtValue *values[2] = {lm_ort_wrap(&ort, x, sizeof x, model.inputs[0].dims, 1, ORT_INT64)};
        const struct lm_sizes sizes = {.rows = 1};
        const struct lm_run run = {.ort = &ort,
                                   .cpu = -1,
                                   .values = values,
                                   .inputs = inputs,
                                   .sizes = &sizes,
                                   .optionals = times % 2};
        void *data = NULL;
        CHECK(values[0] && lm_model_make_run(&model, false, &run) == 0 && values[1]);
        CHECK(lm_ort_check(&ort, ort.api->GetTensorMutableData(values[1], &data), "y") == 0);
        for (int64_t i = 0; i < 3; i++)
            CHECK(((int64_t *)data)[i] == x[i] + (times % 2 ? k[0] : ten[0]));
        for (uint32_t v = 0; v < 2; v++) lm_ort_value_close(&ort, values[v]);
    }
    lm_model_close(&model, &ort);
    lm_ort_close(&ort);
    return check_finish("test_runner");
}
