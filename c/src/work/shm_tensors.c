/* shm_tensors.c: see shm_tensors.h. */
#include "work/shm_tensors.h"

#include <stdio.h>

#include "flow/state.h"
#include "models/layout.h"
#include "models/strings.h"

bool lm_shm_tensors_add_room(const struct lm_model *model, const struct lm_oip_request *asked,
                             size_t *total) {
    for (uint32_t p = 0; p < asked->place_count; p++) {
        const struct lm_oip_place *place = &asked->places[p];
        if (place->is_output || !lm_is_string(&model->inputs[place->tensor])) continue;
        for (uint32_t copy = 0; copy <= lm_model_echoes(model); copy++)
            if (!lm_slot_add(total, place->bytes)) return false;
    }
    return true;
}

void lm_shm_tensors_place(struct lm_request *request, const struct lm_oip_request *asked) {
    for (uint32_t p = 0; p < asked->place_count; p++) {
        const struct lm_oip_place *place = &asked->places[p];
        const uint32_t input = place->tensor;
        if (place->is_output || !lm_is_string(&request->model->inputs[input])) continue;
        request->layout.inputs[input] = lm_slot_alloc(request->slot, place->bytes);
        request->layout.string_bytes[input] = place->bytes;
    }
}

enum lm_status lm_shm_tensors_read(struct lm_request *request, char *why, size_t why_bytes) {
    const struct lm_oip_request *asked = request->asked;
    for (uint32_t p = 0; p < asked->place_count; p++) {
        const struct lm_oip_place *place = &asked->places[p];
        if (place->is_output) continue;
        void *to = request->layout.inputs[place->tensor];
        if (!to) {
            snprintf(why, why_bytes, "input '%.64s': its %llu bytes do not fit its slot",
                     request->model->inputs[place->tensor].name, (unsigned long long)place->bytes);
            return LM_STATUS_TOO_LARGE;
        }
        if (!lm_shm_read(request->io->shared->shm, place->region, place->offset, to, place->bytes,
                         why, why_bytes))
            return LM_STATUS_BAD_REQUEST;
    }
    /* Of the copy: the client may write there again. */
    bool fit = request->model->string_inputs == 0 ||
               lm_strings_check(request->model, &request->sizes, &request->layout, why, why_bytes);
    return fit ? LM_STATUS_OK : LM_STATUS_BAD_REQUEST;
}

bool lm_shm_tensors_write(const struct lm_request *request, const void *const *data,
                          const size_t *bytes, char *why, size_t why_bytes) {
    const struct lm_oip_request *asked = request->asked;
    for (uint32_t p = 0; p < asked->place_count; p++) {
        const struct lm_oip_place *place = &asked->places[p];
        uint32_t o = place->tensor;
        if (!place->is_output) continue;
        if (bytes[o] > place->bytes) {
            snprintf(why, why_bytes,
                     "output '%.64s': shared_memory_byte_size: expected at least %zu, found %llu",
                     request->model->outputs[o].name, bytes[o], (unsigned long long)place->bytes);
            return false;
        }
        if (!lm_shm_write(request->io->shared->shm, place->region, place->offset, data[o], bytes[o],
                          why, why_bytes))
            return false;
    }
    return true;
}
