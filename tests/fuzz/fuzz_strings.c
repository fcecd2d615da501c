/* fuzz_strings.c: any bytes as a body of strings and numbers. The first byte says how many rows,
 * and whether the body is one piece or comes input by input. */
#include "fuzz.h"
#include "models/layout.h"
#include "models/strings.h"

static struct lm_tensor inputs[3];
static struct lm_model model = {.inputs = inputs};

static void add_input(const char *name, int dtype, uint32_t columns) {
    struct lm_tensor *tensor = &model.inputs[model.input_count++];
    *tensor = (struct lm_tensor){.dtype = dtype, .rank = 2, .dims = {-1, columns}};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->rows_free = tensor->shape_known = true;
    tensor->element_bytes = lm_dtype_bytes(dtype);
    tensor->row_bytes = tensor->element_bytes * columns;
    model.string_inputs += lm_is_string(tensor);
}

/* So many strings must be found again, one behind the other. */
static void check_strings(const uint8_t *at, size_t bytes, size_t count) {
    const uint8_t *end = at + bytes;
    for (size_t i = 0; i < count; i++) {
        uint32_t length;
        HOLDS(end - at >= 4);
        memcpy(&length, at, 4);
        HOLDS(length <= LM_STRING_BYTES_MAX && length <= (size_t)(end - at) - 4);
        at += 4 + length;
    }
    HOLDS(at == end);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    if (model.input_count == 0) {
        add_input("a", ORT_STRING, 2);
        add_input("b", ORT_FLOAT, 1);
        add_input("c", ORT_STRING, 1);
    }
    if (count == 0) return 0;
    const struct lm_sizes sizes = {.rows = 1 + input[0] % 4};
    struct lm_layout_lists lists = {0};
    struct lm_layout layout = lm_layout_of(&lists);
    char why[256] = "";
    size_t bytes = count - 1, cut = (size_t)(input[0] / 8) % (bytes + 1);
    uint8_t *numbers = calloc(sizes.rows, 4), *first = NULL, *second = NULL;
    layout.inputs[1] = numbers;
    if (input[0] & 4) {
        layout.raw = first = fuzz_copy(input + 1, bytes);
        layout.raw_bytes = bytes;
    } else {
        layout.inputs[0] = first = fuzz_copy(input + 1, cut);
        layout.string_bytes[0] = cut;
        layout.inputs[2] = second = fuzz_copy(input + 1 + cut, bytes - cut);
        layout.string_bytes[2] = bytes - cut;
    }
    bool fit = lm_strings_check(&model, &sizes, &layout, why, sizeof why);
    HOLDS(fit == (why[0] == '\0'));
    if (fit) {
        check_strings(layout.inputs[0], layout.string_bytes[0], 2 * (size_t)sizes.rows);
        check_strings(layout.inputs[2], layout.string_bytes[2], sizes.rows);
        HOLDS(layout.string_bytes[0] + layout.string_bytes[2] +
                  (layout.raw ? 4 * (size_t)sizes.rows : 0) ==
              bytes);
    }
    free(numbers);
    free(first);
    free(second);
    return 0;
}
