/* request_lists.c: see request_lists.h. */
#include "flow/request_lists.h"

#include <stdlib.h>

#include "base/error.h"

int lm_request_lists_open(struct lm_model_set *set, const struct lm_model_set *before) {
    uint32_t inputs = 0, outputs = 0;
    for (uint32_t m = 0; m < set->count; m++) {
        const struct lm_model *model = set->models[m];
        const uint32_t all = model->input_count + model->optional_count;
        if (all > inputs) inputs = all;
        if (model->output_count > outputs) outputs = model->output_count;
    }
    struct lm_request_lists *lists = before ? before->lists : NULL;
    if (!lists || lists->inputs < inputs || lists->outputs < outputs) {
        lists = calloc(1, sizeof *lists);
        if (!lists) return lm_error(LUMEN_E_NOMEM, "no memory for the lists of requests");
        lists->number = before ? before->lists->number + 1 : 1;
        lists->inputs = inputs;
        lists->outputs = outputs;
        lists->bytes = lm_request_lists_bytes(inputs, outputs);
    }
    lists->sets++;
    set->lists = lists;
    return 0;
}

int lm_request_lists_hold(struct lm_request_lists *lists, const struct lm_io *io) {
    const uint32_t slots = lm_arena_slots_max(&io->arena);
    uint8_t **memory = &lists->memory[io->index];
    if (!*memory) *memory = aligned_alloc(LM_CACHE_LINE, slots * lists->bytes);
    return *memory ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for the lists of %u slots", slots);
}

void lm_request_lists_close(struct lm_request_lists *lists) {
    if (!lists || --lists->sets > 0) return;
    for (uint32_t i = 0; i < LUMEN_IO_THREADS_MAX; i++) free(lists->memory[i]);
    free(lists);
}

void lm_request_lists_give(const struct lm_request_lists *lists, const struct lm_io *io,
                           struct lm_request *request) {
    uint8_t *memory = lists->memory[io->index] + request->slot->index * lists->bytes;
    lm_request_hold_lists(request, memory, lists->inputs, lists->outputs);
    request->lists = lists->number;
}
