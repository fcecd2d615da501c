/* upstream_fallback.c: see upstream_fallback.h. */
#include "dialects/upstream_fallback.h"

#include "flow/gate.h"
#include "formats/texts_kinds.h"
#include "models/runner.h"

/* Whether this model could answer the request now, and its client's key may use it. */
static bool may_answer(const struct lm_io *io, const struct lm_request *request,
                       const struct lm_model *model) {
    const uint8_t route = request->wish.route;
    char text[LM_TEXT_BYTES_MAX];
    const bool fits =
        route == LM_ROUTE_INFER ? lm_model_is_elsewhere(model) : lm_texts_fit(model, route);
    if (!fits || lm_model_why_down(model, text, sizeof text)) return false;
    return lm_gate_allows(io, lm_gate_key_of(io, request), model);
}

/* The next model in the list, from the one of number `fallen` on; NULL: there is none. */
static const struct lm_model *next_model(struct lm_io *io, uint32_t slot, uint8_t *fallen) {
    const struct lm_exchange *exchange = lm_exchange_of(io, slot);
    const struct lm_request *request = &io->requests[slot];
    while (*fallen < LUMEN_FALLBACKS_MAX) {
        const uint32_t index =
            lm_fallbacks_at(&io->shared->fallbacks, exchange->wanted, (*fallen)++);
        const struct lm_model *model =
            index < LUMEN_MODELS_MAX ? lm_model_set_find(request->models, index) : NULL;
        if (model && index != exchange->wanted && may_answer(io, request, model)) return model;
    }
    return NULL;
}

const struct lm_model *lm_upstream_next_model(struct lm_io *io, uint32_t slot) {
    return next_model(io, slot, &lm_exchange_of(io, slot)->fallen);
}

bool lm_upstream_has_next_model(struct lm_io *io, uint32_t slot) {
    uint8_t fallen = lm_exchange_of(io, slot)->fallen;
    return lm_fallbacks_are_any(&io->shared->fallbacks) && next_model(io, slot, &fallen);
}

const struct lm_model *lm_upstream_spill(struct lm_io *io, struct lm_request *request,
                                         struct lm_openai_request *asked) {
    const uint32_t slot = request->slot->index;
    struct lm_refusal refusal;
    if (!io->upstream || !lm_fallbacks_are_any(&io->shared->fallbacks)) return NULL;
    /* A body that names no model cannot be given the name that the upstream knows. */
    if (lm_openai_read(io->upstream->parser, request->body.text, request->body.bytes, asked,
                       refusal.why, sizeof refusal.why) != LM_STATUS_OK)
        return NULL;
    lm_exchange_of(io, slot)->wanted = (uint16_t)request->model->index;
    lm_exchange_of(io, slot)->fallen = 0;
    for (const struct lm_model *model; (model = lm_upstream_next_model(io, slot));) {
        if (!lm_model_is_elsewhere(model) ||
            !lm_gate_enter_model(io, model, lm_gate_key_of(io, request), &refusal))
            continue;
        lm_add_single_writer_u64(&io->stats->io.upstream_spills, 1);
        return model;
    }
    return NULL;
}
