/* json_bench.c: how long one Open Inference Protocol request takes from its JSON to the tensor.
 *
 *   json_bench TENSOR_FILE REQUEST_FILE...
 *
 * For each line on standard input that names a request by its number, it is read that many times:
 * "<request> <times>". The answer is a line with the nanoseconds of the fastest reading and of the
 * median one; the tensor is then in TENSOR_FILE. Started by bench/micro/json_bench.py,
 * which lets others read the same texts in turn. The model is one picture, 3 x 224 x 224 FP32.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "formats/oip_request.h"

enum { ELEMENTS = 3 * 224 * 224, REQUESTS_MAX = 8, TIMES_MAX = 1000 };

static struct lm_model model;
static char *texts[REQUESTS_MAX];
static size_t text_bytes[REQUESTS_MAX];

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "json_bench: %s\n", what);
    exit(1);
}

static void make_model(void) {
    snprintf(model.name, sizeof model.name, "picture");
    if (lm_model_hold_tensors(&model, 1, 1)) fail(lm_error_last());
    model.input_count = model.output_count = model.max_rows = 1;
    model.inputs[0] = (struct lm_tensor){.name = "image",
                                         .dtype = ORT_FLOAT,
                                         .rank = 4,
                                         .dims = {-1, 3, 224, 224},
                                         .rows_free = true,
                                         .shape_known = true,
                                         .element_bytes = sizeof(float),
                                         .row_bytes = ELEMENTS * sizeof(float)};
    model.outputs[0] = model.inputs[0];
    model.rows_free = true;
}

static void read_text(const char *path, uint32_t index) {
    FILE *file = fopen(path, "rbe");
    if (!file || fseek(file, 0, SEEK_END) != 0) fail(path);
    text_bytes[index] = (size_t)ftell(file);
    texts[index] = malloc(text_bytes[index] + LM_OIP_PADDING);
    rewind(file);
    if (!texts[index] || fread(texts[index], 1, text_bytes[index], file) != text_bytes[index])
        fail(path);
    fclose(file);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void read_one(struct lm_oip_parser *parser, uint32_t index, void *tensor) {
    struct lm_oip_request request;
    struct lm_oip_lists lists;
    void *const inputs[LM_TENSORS_MAX] = {tensor};
    char why[LM_TEXT_BYTES_MAX];
    lm_oip_request_hold(&request, &lists);
    if (lm_oip_read(parser, texts[index], text_bytes[index], &model, &request, why, sizeof why) ||
        lm_oip_values(parser, &request, &model, inputs, why, sizeof why))
        fail(why);
}

static void measure(struct lm_oip_parser *parser, uint32_t index, uint32_t times, float *tensor) {
    static uint64_t samples[TIMES_MAX];
    for (uint32_t i = 0; i < times; i++) {
        uint64_t start = lm_now_ns();
        read_one(parser, index, tensor);
        samples[i] = lm_now_ns() - start;
    }
    qsort(samples, times, sizeof *samples, by_value);
    printf("%llu %llu\n", (unsigned long long)samples[0], (unsigned long long)samples[times / 2]);
    fflush(stdout);
}

int main(int argc, char **argv) {
    struct lm_oip_parser *parser = NULL;
    size_t largest = 0;
    float *tensor = aligned_alloc(LM_SLOT_ALIGN, ELEMENTS * sizeof(float));
    if (argc < 3 || argc > 2 + REQUESTS_MAX || !tensor)
        fail("expected TENSOR_FILE REQUEST_FILE...");
    make_model();
    for (int i = 2; i < argc; i++) {
        read_text(argv[i], (uint32_t)i - 2);
        if (text_bytes[i - 2] > largest) largest = text_bytes[i - 2];
    }
    if (lm_oip_parser_open(&parser, largest)) fail(lm_error_last());
    uint32_t index, times;
    while (scanf("%u %u", &index, &times) == 2) {
        if (index >= (uint32_t)argc - 2 || times < 1 || times > TIMES_MAX) fail("bad line");
        FILE *file = fopen(argv[1], "wbe");
        if (!file) fail(argv[1]);
        read_one(parser, index, tensor);
        if (fwrite(tensor, sizeof(float), ELEMENTS, file) != ELEMENTS || fclose(file) != 0)
            fail(argv[1]);
        measure(parser, index, times, tensor);
    }
    lm_oip_parser_close(parser);
    free(tensor);
    return 0;
}
