/* test_image_desk.c: what a worker decodes pictures with: the desk of the start does for a model
 * that comes later as long as that needs no more memory and no more pixels of one picture; else the
 * model has one of its own. */
#include "check.h"
#include "work/image_body.h"
#include "work/state.h"

enum { BYTES = 1000, PIXELS = 5000 };

static struct lm_shared shared;
static struct lm_worker worker = {.shared = &shared};

static struct lm_model picture_model(size_t bytes, uint32_t pixels) {
    return (struct lm_model){
        .picture_bytes = bytes,
        .input_plan = {.has_images = true, .image = {.max_whole_pixels = pixels}}};
}

/* Whether a model that comes later gets a desk of its own. */
static bool needs_own(size_t bytes, uint32_t pixels) {
    static struct lm_model model;
    model = picture_model(bytes, pixels);
    CHECK(lm_image_desk_extend(&worker, &model) == 0);
    const bool has_own = model.desks[worker.index] != NULL;
    lm_image_desk_close(&model.desks[worker.index]);
    CHECK(!model.desks[worker.index]);
    return has_own;
}

int main(void) {
    static struct lm_model small, large, numbers;
    static struct lm_model_set set;
    small = picture_model(BYTES, PIXELS / 2);
    large = picture_model(BYTES / 2, PIXELS);
    small.index = 1;
    large.index = 2;
    CHECK(lm_model_set_add(&set, &numbers) == 0);
    lm_store_relaxed_u64(&shared.models, (uintptr_t)&set);   /* relaxed: alone */
    CHECK(lm_image_desk_open(&worker) == 0 && !worker.desk); /* no model takes pictures */
    CHECK(needs_own(1, 1));
    CHECK(lm_model_set_add(&set, &small) == 0 && lm_model_set_add(&set, &large) == 0);
    CHECK(lm_image_desk_open(&worker) == 0 && worker.desk);
    CHECK(!needs_own(BYTES, PIXELS) && !needs_own(1, 1));
    CHECK(needs_own(BYTES + 1, PIXELS));
    CHECK(needs_own(BYTES, PIXELS + 1));
    numbers.picture_bytes = 2 * BYTES; /* it takes none */
    CHECK(lm_image_desk_extend(&worker, &numbers) == 0 && !numbers.desks[worker.index]);
    lm_image_desk_close(&worker.desk);
    lm_model_set_close(&set);
    return check_finish("test_image_desk");
}
