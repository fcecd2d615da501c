/* request.c: see request.h. */
#include "flow/request.h"
#include "models/layout.h"

/* Takes room for `count` elements of `size` bytes; NULL memory: it is only counted. */
static void *take(uint8_t *memory, size_t *used, size_t count, size_t size) {
    void *place = memory ? memory + *used : NULL;
    *used += (count * size + 7) / 8 * 8;
    return place;
}

static size_t lay_out(struct lm_request *request, uint8_t *memory, uint32_t inputs,
                      uint32_t outputs) {
    struct lm_layout *layout = &request->layout;
    struct lm_oip_request unused, *asked = &unused;
    size_t used = 0;
    layout->inputs = take(memory, &used, inputs, sizeof *layout->inputs);
    layout->outputs = take(memory, &used, outputs, sizeof *layout->outputs);
    request->parts = take(memory, &used, 1 + (size_t)inputs, sizeof *request->parts);
    request->reply = take(memory, &used, 2 + 2 * (size_t)outputs, sizeof *request->reply);
    request->asked = take(memory, &used, 1, sizeof *asked);
    if (memory) asked = request->asked;
    request->keeping.outputs = take(memory, &used, outputs, sizeof *request->keeping.outputs);
    layout->string_bytes = take(memory, &used, inputs, sizeof *layout->string_bytes);
    asked->blob_bytes = take(memory, &used, inputs, sizeof *asked->blob_bytes);
    asked->blob_inputs = take(memory, &used, inputs, sizeof *asked->blob_inputs);
    asked->requested = take(memory, &used, outputs, sizeof *asked->requested);
    size_t places = (size_t)inputs + outputs;
    if (places > LM_OIP_PLACES_MAX) places = LM_OIP_PLACES_MAX;
    asked->places = take(memory, &used, places, sizeof *asked->places);
    request->prefix = take(memory, &used, 1, LM_SHAPE_BLOCK_BYTES(outputs));
    return used;
}

size_t lm_request_lists_bytes(uint32_t inputs, uint32_t outputs) {
    struct lm_request unused;
    return lm_align_up(lay_out(&unused, NULL, inputs, outputs), LM_CACHE_LINE);
}

void lm_request_hold_lists(struct lm_request *request, uint8_t *memory, uint32_t inputs,
                           uint32_t outputs) {
    lay_out(request, memory, inputs, outputs);
}
