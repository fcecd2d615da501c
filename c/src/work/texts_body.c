/* texts_body.c: see texts_body.h. */
#include "work/texts_body.h"

#include <stdio.h>

#include "flow/carrier.h"
#include "flow/state.h"
#include "formats/texts_find.h"
#include "formats/texts_request.h"
#include "lumen.h"
#include "models/layout.h"

/* Whether the body names the request's model. Its I/O thread has looked for the name, unless the
 * body is compressed or spells it with escapes (dialects/http_texts.h). */
static enum lm_status check_model(struct lm_oip_parser *parser, const struct lm_request *request,
                                  char *why, size_t why_bytes) {
    size_t bytes = 0;
    const char *name = lm_texts_model(parser, &bytes);
    if (!name || request->stands_in || lm_texts_is_named(request->model, name, bytes))
        return LM_STATUS_OK;
    snprintf(why, why_bytes, "model '%.*s' is not found: expected '%s'%s",
             (int)(bytes < 64 ? bytes : 64), name, request->model->base,
             lm_carrier_of(request)->is_coded ? " (a compressed body is for the first model alone)"
                                              : "");
    return LM_STATUS_UNKNOWN_MODEL;
}

/* Texts and the vectors to be made of them lie in the slot, or beside it: how many there are, only
 * the JSON says, and its densest form is no measure. */
static enum lm_status place(struct lm_request *request, const size_t *strings, char *why,
                            size_t why_bytes) {
    const struct lm_model *model = request->model;
    struct lm_slot *slot = request->slot, beside = {0};
    struct lm_layout *layout = &request->layout;
    size_t needed = 0, sum = 0;
    for (uint32_t i = 0; i < model->input_count; i++) sum += strings[i];
    request->sizes = request->asked->sizes;
    if (!lm_model_slot_bytes_with(model, &request->sizes, sum, &needed)) needed = SIZE_MAX;
    if (needed > lm_slot_left(slot)) {
        void *memory = NULL;
        int code = needed == SIZE_MAX ? LUMEN_E_ORT
                                      : lm_spill_take(&request->io->shared->spills,
                                                      &request->spills, needed, &memory);
        beside = (struct lm_slot){.base = memory, .bytes = needed};
        slot = &beside;
        snprintf(why, why_bytes,
                 "%u texts need %zu bytes with their answers, more than there are: send fewer in "
                 "one request",
                 request->sizes.rows, needed);
        if (code) return code == LUMEN_E_NOMEM ? LM_STATUS_OVERLOADED : LM_STATUS_TOO_LARGE;
    }
    lm_model_layout(model, slot, LM_ENCODING_TENSORS, &request->sizes, layout);
    for (uint32_t i = 0; i < model->input_count; i++) {
        layout->inputs[i] = lm_slot_alloc(slot, strings[i]);
        layout->string_bytes[i] = strings[i];
    }
    return LM_STATUS_OK;
}

enum lm_status lm_texts_body_read(struct lm_oip_parser *parser, struct lm_request *request,
                                  char *why, size_t why_bytes) {
    const struct lm_body *body = &request->body;
    size_t strings[LM_TENSORS_MAX];
    enum lm_status status = lm_texts_parse(parser, body->text, body->bytes, why, why_bytes);
    if (status == LM_STATUS_OK) status = check_model(parser, request, why, why_bytes);
    if (status == LM_STATUS_OK)
        status = lm_texts_read(parser, request->model, request->wish.route, request->asked, why,
                               why_bytes);
    if (status != LM_STATUS_OK) return status;
    lm_texts_bytes(parser, request->model, strings);
    status = place(request, strings, why, why_bytes);
    if (status == LM_STATUS_OK) lm_texts_write(parser, request->model, request->layout.inputs);
    return status;
}
