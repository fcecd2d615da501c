/* fuzz_texts_request.cc: any bytes as a request of texts, for a model and a route that the first
 * byte chooses. What is written of it are whole strings, one for each row, and the longest reply
 * fits what is kept for it.
 */
#include "fuzz_request.h"
extern "C" {
#include "formats/http_route.h"
#include "formats/texts_find.h"
#include "formats/texts_kinds.h"
#include "formats/texts_reply.h"
#include "formats/texts_request.h"
#include "models/text_model.h"
}

namespace {

constexpr uint32_t MODELS = 4, VALUES = 3;
constexpr uint8_t ROUTES[] = {LM_ROUTE_EMBEDDINGS, LM_ROUTE_EMBED,    LM_ROUTE_PREDICT_TEXT,
                              LM_ROUTE_SIMILARITY, LM_ROUTE_RERANK,   LM_ROUTE_RERANK_V1,
                              LM_ROUTE_RERANK_V2,  LM_ROUTE_ENTITIES, LM_ROUTE_DECODE,
                              LM_ROUTE_EMBED_ALL};

struct lm_model models[MODELS];
struct lm_text_model texts[MODELS];

/* Three tokens, which /decode joins. */
struct lm_tokenizer make_tokenizer() {
    static struct lm_text_header header = {};
    static const uint32_t ends[] = {1, 3, 9}, special[] = {4};
    header.vocabulary = 3;
    struct lm_tokenizer tokenizer = {};
    tokenizer.header = &header;
    tokenizer.names = (const uint8_t *)"a\"\x01[MASK]";
    tokenizer.name_ends = ends;
    tokenizer.special = special;
    return tokenizer;
}

/* Embeddings; scores of texts; scores of pairs; entities. */
void make_models() {
    static struct lm_text prompt = {"say ", 4};
    static const char *prompt_name = "say";
    const int64_t flat[] = {-1}, row[] = {-1, VALUES};
    for (uint32_t m = 0; m < MODELS; m++) {
        make_model(models[m]);
        models[m].max_rows = 64;
        models[m].text = &texts[m];
        texts[m].task = m == 0   ? LUMEN_TEXT_EMBEDDING
                        : m == 3 ? LUMEN_TEXT_ENTITIES
                                 : LUMEN_TEXT_SCORES;
        texts[m].has_pairs = m == 2;
        texts[m].values = texts[m].width = VALUES;
        texts[m].output_rank = 3;
        texts[m].tokenizer = make_tokenizer();
        texts[m].prompts = &prompt;
        texts[m].prompt_names = &prompt_name;
        texts[m].prompt_count = 1;
        add_input(models[m], "text", ORT_STRING, 1, flat);
        if (m == 2) add_input(models[m], "text_pair", ORT_STRING, 1, flat);
        add_output(models[m], "values", m == 3 ? ORT_STRING : ORT_FLOAT, m == 3 ? 1 : 2,
                   m == 3 ? flat : row);
        add_output(models[m], "tokens", ORT_INT32, 1, flat);
    }
    snprintf(models[0].base, sizeof models[0].base, "m\"");
}

/* Whether so many strings are all that is there. */
void check_strings(const uint8_t *at, size_t bytes, uint32_t rows) {
    const uint8_t *end = at + bytes;
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t length;
        HOLDS(end - at >= (ptrdiff_t)sizeof length);
        memcpy(&length, at, sizeof length);
        at += sizeof length;
        HOLDS((size_t)(end - at) >= length && length <= LM_STRING_BYTES_MAX);
        at += length;
    }
    HOLDS(at == end);
}

void check_reply(const struct lm_model *model, uint8_t route, const struct lm_oip_request *request,
                 const void *scored, size_t scored_bytes) {
    const uint32_t rows = request->sizes.rows;
    float *values = (float *)calloc(rows, VALUES * sizeof(float));
    int32_t *tokens = (int32_t *)calloc(rows, sizeof *tokens);
    for (uint32_t i = 0; i < rows * VALUES; i++) values[i] = -1.1754944e-38f * (float)(1 + i % 3);
    struct lm_oip_output outputs[2] = {};
    for (uint32_t o = 0; o < 2; o++) outputs[o].tensor = &model->outputs[o];
    outputs[0].data = values;
    outputs[0].bytes = rows * VALUES * sizeof(float);
    if (route == LM_ROUTE_ENTITIES) /* a string of 8 bytes for each row */
        for (uint32_t i = 0; i < rows; i++) ((uint32_t *)values)[i * VALUES] = 8;
    if (route == LM_ROUTE_EMBED_ALL) /* a token for each text */
        for (uint32_t row = 0; row < rows; row++) tokens[row] = 1;
    outputs[1].data = tokens;
    const struct lm_texts_answer answer = {model,   &request->texts, route,       rows,
                                           outputs, scored,          scored_bytes};
    struct lm_oip_room room = {};
    size_t bytes = 0;
    char why[LM_TEXT_BYTES_MAX];
    HOLDS(lm_texts_reply_bytes_max(&answer, &room.json_bytes, &room.scratch_bytes));
    room.json = (char *)malloc(room.json_bytes);
    room.scratch = malloc(room.scratch_bytes + 1);
    HOLDS(lm_texts_reply(&answer, &room, &bytes, why, sizeof why) == LM_STATUS_OK);
    HOLDS(bytes <= room.json_bytes);
    free(room.json);
    free(room.scratch);
    free(values);
    free(tokens);
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    static struct lm_oip_parser *parser;
    static struct lm_oip_lists lists;
    struct lm_oip_request request;
    char why[LM_TEXT_BYTES_MAX];
    size_t name_bytes = 0, named_bytes = 0, strings[LM_TENSORS_MAX] = {0};
    void *inputs[LM_TENSORS_MAX] = {nullptr};
    if (!parser) {
        make_models();
        HOLDS(lm_oip_parser_open(&parser, 1 << 16) == 0);
    }
    if (count < 1 || count > 1 << 16) return 0;
    const struct lm_model *model = &models[bytes[0] % MODELS];
    const uint8_t route = ROUTES[bytes[0] / MODELS % sizeof ROUTES];
    const size_t text_bytes = count - 1;
    char *text = (char *)malloc(text_bytes + LM_OIP_PADDING);
    memcpy(text, bytes + 1, text_bytes);
    memset(text + text_bytes, ' ', LM_OIP_PADDING);
    const char *name = lm_texts_find_model(text, text_bytes, &name_bytes);
    HOLDS(!name || (name >= text && name + name_bytes <= text + text_bytes));
    lm_oip_request_hold(&request, &lists);
    if (lm_texts_parse(parser, text, text_bytes, why, sizeof why) == LM_STATUS_OK) {
        /* What an I/O thread takes for the model's name a worker finds there too. */
        const char *named = lm_texts_model(parser, &named_bytes);
        HOLDS(!name || memchr(text, '\\', text_bytes) || named);
        if (lm_texts_read(parser, model, route, &request, why, sizeof why) == LM_STATUS_OK) {
            HOLDS(lm_texts_fit(model, route));
            HOLDS(request.sizes.rows >= 1 && request.sizes.rows <= model->max_rows);
            lm_texts_bytes(parser, model, strings);
            for (uint32_t i = 0; i < model->input_count; i++) inputs[i] = malloc(strings[i]);
            lm_texts_write(parser, model, inputs);
            for (uint32_t i = 0; i < model->input_count; i++)
                check_strings((const uint8_t *)inputs[i], strings[i], request.sizes.rows);
            const uint32_t scored = model->input_count - 1;
            check_reply(model, route, &request, inputs[scored], strings[scored]);
            for (uint32_t i = 0; i < model->input_count; i++) free(inputs[i]);
        }
    }
    free(text);
    return 0;
}
