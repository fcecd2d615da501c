/* io_model.c: see io_model.h. Control thread only. */
#include "flow/io_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/binding.h"
#include "models/sizes.h"

static size_t tensor_count(const struct lm_model *model) {
    return (size_t)model->input_count + model->output_count;
}

/* A slot whose memory is its own, not a malloc for each request. */
static int bind_slot(const struct lm_io *io, const struct lm_model *model, uint32_t index) {
    struct lm_io_model *side = model->sides[io->index];
    const struct lm_sizes sizes = lm_model_largest(model, 1);
    struct lm_layout_lists lists;
    struct lm_layout layout = lm_layout_of(&lists);
    /* Another request may hold the slot now; and the I/O thread may be taking an annex. */
    const struct lm_slot *slot = &io->arena.slots[index];
    struct lm_slot empty = index < io->arena.base_slots
                               ? (struct lm_slot){.base = slot->home, .bytes = slot->bytes}
                               : lm_annexes_slot(&io->annexes, index);
    size_t bytes = 0;
    if (!lm_model_slot_bytes(model, &sizes, &bytes) || bytes != empty.bytes) return 0;
    lm_model_layout(model, &empty, LM_ENCODING_TENSORS, &sizes, &layout);
    return lm_model_bind(model, &io->shared->ort, &layout, &sizes, &side->bindings[index],
                         side->values + index * tensor_count(model));
}

int lm_io_model_open(struct lm_io *io, struct lm_model *model) {
    const uint32_t slots = lm_arena_slots_max(&io->arena);
    struct lm_io_model *side = aligned_alloc(LM_CACHE_LINE, sizeof *side);
    model->sides[io->index] = side;
    if (side) {
        memset(side, 0, sizeof *side);
        side->slot_count = slots;
        side->bindings = calloc(slots, sizeof *side->bindings);
        side->values = calloc(slots * tensor_count(model), sizeof *side->values);
    }
    if (!side || !side->bindings || !side->values)
        return lm_error(LUMEN_E_NOMEM, "no memory for the tensors of model '%s' in %u slots",
                        model->name, slots);
    int code = 0;
    bool has_memory = io->shared->config.allocator_type == LUMEN_ALLOCATOR_ARENA;
    for (uint32_t s = 0; has_memory && !code && s < slots; s++) code = bind_slot(io, model, s);
    return code;
}

void lm_io_model_close(struct lm_io *io, struct lm_model *model) {
    struct lm_io_model *side = model->sides[io->index];
    if (!side) return;
    for (uint32_t s = 0; side->values && side->bindings && s < side->slot_count; s++)
        lm_model_unbind(model, &io->shared->ort, &side->bindings[s],
                        side->values + s * tensor_count(model));
    free(side->bindings);
    free(side->values);
    free(side);
    model->sides[io->index] = NULL;
}
