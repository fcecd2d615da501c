/* test_shm_tensors.c: the room that a slot needs for strings from shared memory: for each input of
 * strings its copy, and once more where the model may give them back. */
#include "check.h"
#include "work/shm_tensors.h"

enum { FIRST_BYTES = 1000, SECOND_BYTES = 300 };

static struct lm_tensor inputs[] = {
    {.dtype = ORT_STRING}, {.dtype = ORT_FLOAT}, {.dtype = ORT_STRING}};

static size_t room_of(uint32_t string_outputs, bool are_default) {
    static struct lm_oip_place places[] = {{.bytes = FIRST_BYTES},
                                           {.bytes = 7000, .tensor = 1},
                                           {.bytes = 9000, .is_output = true},
                                           {.bytes = SECOND_BYTES, .tensor = 2}};
    const struct lm_model model = {.inputs = inputs,
                                   .input_count = 3,
                                   .string_inputs = 2,
                                   .string_outputs = string_outputs,
                                   .output_bytes_are_default = are_default};
    const struct lm_oip_request asked = {.places = places, .place_count = 4};
    size_t total = 0;
    CHECK(lm_shm_tensors_add_room(&model, &asked, &total));
    return total;
}

int main(void) {
    const size_t copies =
        lm_align_up(FIRST_BYTES, LM_SLOT_ALIGN) + lm_align_up(SECOND_BYTES, LM_SLOT_ALIGN);
    CHECK(room_of(0, true) == copies);
    CHECK(room_of(1, false) == copies); /* a setting says how large its outputs are */
    CHECK(room_of(1, true) == 2 * copies);
    return check_finish("test_shm_tensors");
}
