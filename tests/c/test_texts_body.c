/* test_texts_body.c: texts that do not fit the slot of their request lie beside it, as long as
 * there is memory: where others have it now, the client may ask again; where there is never so
 * much, its request is too large. */
#include "check.h"
#include "flow/state.h"
#include "formats/http_route.h"
#include "models/text_model.h"
#include "work/texts_body.h"

enum { TEXTS = 50, VALUES = 3, SPILL_BYTES = 1 << 20 };

static struct lm_shared shared;
static struct lm_io io = {.shared = &shared};
static struct lm_oip_parser *parser;
static struct lm_request request;

static struct lm_tensor input = {.name = "text",
                                 .dtype = ORT_STRING,
                                 .rank = 1,
                                 .dims = {-1},
                                 .rows_free = true,
                                 .shape_known = true,
                                 .element_bytes = 4,
                                 .row_bytes = 4};
static struct lm_tensor outputs[] = {{.name = "values",
                                      .dtype = ORT_FLOAT,
                                      .rank = 2,
                                      .dims = {-1, VALUES},
                                      .rows_free = true,
                                      .shape_known = true,
                                      .element_bytes = 4,
                                      .row_bytes = 4 * VALUES},
                                     {.name = "tokens",
                                      .dtype = ORT_INT32,
                                      .rank = 1,
                                      .dims = {-1},
                                      .rows_free = true,
                                      .shape_known = true,
                                      .element_bytes = 4,
                                      .row_bytes = 4}};
static struct lm_text_model text = {
    .task = LUMEN_TEXT_EMBEDDING, .values = VALUES, .width = VALUES, .output_rank = 3};
static struct lm_model model = {.name = "m",
                                .base = "m",
                                .text = &text,
                                .inputs = &input,
                                .outputs = outputs,
                                .input_count = 1,
                                .output_count = 2,
                                .string_inputs = 1,
                                .rows_free = true,
                                .outputs_known = true,
                                .max_rows = TEXTS};

/* The status of a request whose slot has so many bytes; `why`: why it is refused. */
static enum lm_status status_of(size_t slot_bytes, char *why, size_t why_bytes) {
    static LM_CACHE_ALIGNED uint8_t room[8192];
    static char body[512 + LM_OIP_PADDING];
    static struct lm_layout_lists lists;
    static struct lm_oip_lists asked_lists;
    static struct lm_oip_request asked;
    static struct lm_slot slot;
    size_t used = (size_t)snprintf(body, sizeof body, "{\"inputs\":[\"a\"");
    for (uint32_t t = 1; t < TEXTS; t++) used += (size_t)snprintf(body + used, 5, ",\"a\"");
    used += (size_t)snprintf(body + used, 3, "]}");
    lm_oip_request_hold(&asked, &asked_lists);
    lm_oip_request_reset(&asked);
    slot = (struct lm_slot){.base = room, .bytes = slot_bytes};
    request = (struct lm_request){.io = &io,
                                  .model = &model,
                                  .slot = &slot,
                                  .asked = &asked,
                                  .encoding = LM_ENCODING_TEXTS,
                                  .layout = lm_layout_of(&lists),
                                  .wish = {.route = LM_ROUTE_EMBED},
                                  .body = {.text = body, .bytes = used, .json_bytes = -1}};
    why[0] = '\0';
    return lm_texts_body_read(parser, &request, why, why_bytes);
}

static void texts_are_there(void) {
    const uint8_t *at = request.layout.inputs[0];
    CHECK(request.sizes.rows == TEXTS && request.layout.string_bytes[0] == TEXTS * 5);
    for (uint32_t t = 0; t < TEXTS; t++) CHECK(memcmp(at + t * 5, "\1\0\0\0a", 5) == 0);
}

int main(void) {
    char why[256];
    CHECK(lm_oip_parser_open(&parser, 4096) == 0);
    lm_spill_open(&shared.spills, SPILL_BYTES);
    CHECK(status_of(8192, why, sizeof why) == LM_STATUS_OK && !request.spills);
    texts_are_there();
    CHECK(status_of(64, why, sizeof why) == LM_STATUS_OK && request.spills);
    texts_are_there();
    lm_spill_close(&shared.spills, &request.spills);
    /* relaxed, both: alone */
    lm_store_relaxed_u64(&shared.spills.bytes, SPILL_BYTES);
    CHECK(status_of(64, why, sizeof why) == LM_STATUS_OVERLOADED && !request.spills);
    CHECK(strstr(why, "50 texts need ") && strstr(why, "send fewer in one request"));
    lm_store_relaxed_u64(&shared.spills.bytes, 0);
    lm_spill_open(&shared.spills, 64);
    CHECK(status_of(64, why, sizeof why) == LM_STATUS_TOO_LARGE && !request.spills);
    CHECK(status_of(8192, why, sizeof why) == LM_STATUS_OK);
    lm_oip_parser_close(parser);
    return check_finish("test_texts_body");
}
