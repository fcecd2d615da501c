/* input_plan.h: how a model's tensors are made of what people have: pixels, files of pictures.
 * Planned when the model is loaded; an ensemble and experts take the plan of the model that meets
 * the request first. The bodies are encodings (work/encoding.h), what a worker keeps for them is
 * its own (work/image_body.h). Read-only once a model is loaded: any thread.
 */
#ifndef LM_MODELS_INPUT_PLAN_H
#define LM_MODELS_INPUT_PLAN_H

#include "models/image_plan.h"

struct lm_input_plan {
    bool has_rgb8; /* pixels are taken, 3 bytes each */
    struct lm_rgb8_plan rgb8;
    bool has_images; /* files of pictures are taken */
    struct lm_image_plan image;
};

/* Whether both make the same tensors of the same bytes. */
bool lm_input_plan_is_same(const struct lm_input_plan *one, const struct lm_input_plan *other);
/* Whether the same bodies fit both: what they become may differ. */
bool lm_input_plan_is_like(const struct lm_input_plan *one, const struct lm_input_plan *other);

#endif
