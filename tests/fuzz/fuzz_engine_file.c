/* fuzz_engine_file.c: any bytes as the file of a native engine. It is refused, or it runs without a
 * read outside of it. Digests are not asked: no input would get past them. */
#include <math.h>

#include "engine/engine.h"
#include "fuzz.h"

enum { ELEMENTS_MAX = 1 << 14 };

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    struct lm_engine_view view;
    struct lm_engine engine;
    static float row[3 * ELEMENTS_MAX], scores[3 * ELEMENTS_MAX];
    int64_t labels[3];
    size_t rounded = lm_align_up(count ? count : 1, LM_ENGINE_PAGE);
    uint8_t *copy = aligned_alloc(LM_ENGINE_PAGE, rounded);
    HOLDS(copy);
    /* Up to the page's end, so that AddressSanitizer sees what is behind it. */
    uint8_t *bytes = copy + (rounded - lm_align_up(count, LM_ENGINE_ALIGN));
    memcpy(bytes, input, count);
    bool small = lm_engine_view_open(&view, bytes, count) == 0 &&
                 view.header->inputs <= ELEMENTS_MAX && view.header->scores <= ELEMENTS_MAX;
    for (uint32_t l = 0; small && l < view.layer_count; l++)
        small = view.layers[l].outputs <= ELEMENTS_MAX;
    if (small && lm_engine_open_view(&engine, &view) == 0) {
        uint64_t random = fuzz_seed(input, count);
        for (uint32_t i = 0; i < 3 * view.header->inputs; i++)
            row[i] = fuzz_below(&random, 9) ? (float)fuzz_below(&random, 100) / 10 : NAN;
        void *outputs[2] = {scores, labels};
        bool places =
            view.header->score_output == 0 &&
            (view.header->label_output == 1 || view.header->label_output == LM_ENGINE_NONE);
        if (places) lm_engine_run(&engine, 0, row, outputs, 3, NULL);
        lm_engine_close(&engine);
    }
    free(copy);
    return 0;
}
