/* test_text_model.c: a model of texts, of a tokenizer of twelve tokens and a graph whose vector of
 * a token is its number: a text as large as may be behind each of two prompts stays in the room of
 * its worker. What clients are answered is tested by tests/e2e/models/test_e2e_texts.py. LUMEN_ORT
 * names libonnxruntime.so. */
#include <math.h>

#include "base/error.h"
#include "models/load.h"
#include "models/model.h"
#include "models/text_model.h"
#include "onnx_graph.h"
#include "tiny_tokenizer.h"

enum { TOKENS = 12, WORKERS = 2 };

static char graph[128], tokenizer[128];

static void make_files(void) {
    static struct tiny tiny;
    snprintf(graph, sizeof graph, "%s/graph.onnx", check_temporary_directory());
    snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer", check_directory);
    graph_of_texts(graph);
    make(&tiny);
    check_write_file(tokenizer, &tiny, sizeof tiny);
}

/* `bytes` of a word that is repeated, terminated. */
static void repeat(char *to, size_t bytes, const char *word) {
    for (size_t b = 0; b < bytes; b++) to[b] = word[b % strlen(word)];
    to[bytes] = '\0';
}

/* The mean of the tokens' numbers. */
static float answer_of(const struct lm_model *model, const struct lm_ort *ort, uint16_t prompt,
                       const char *text) {
    static uint8_t wire[4 + LM_STRING_BYTES_MAX];
    const struct lm_text_run run = {.ort = ort,
                                    .session = model->sessions[0],
                                    .rows = 1,
                                    .ask = {.prompt = prompt, .cut = LM_TEXT_CUT}};
    const uint32_t bytes = (uint32_t)strlen(text);
    float value = NAN;
    int32_t tokens = 0;
    memcpy(wire, &bytes, 4);
    memcpy(wire + 4, text, bytes);
    CHECK(lm_text_run_in_place(model->text, &run, (void *[]){wire}, (void *[]){&value, &tokens}) ==
          0);
    CHECK(tokens == TOKENS);
    return value;
}

/* In this order, and the other way round. */
static void prompts(const struct lm_ort *ort, bool longest_first) {
    static char text[LM_STRING_BYTES_MAX + 1], longest[LM_PROMPT_BYTES_MAX + 1];
    const uint16_t first = longest_first ? 1 : 2, second = longest_first ? 2 : 1;
    lumen_option both[2];
    struct lm_model model;
    repeat(text, LM_STRING_BYTES_MAX, "a ");
    repeat(longest, LM_PROMPT_BYTES_MAX, "! ");
    both[first - 1] = (lumen_option){"longest", longest};
    both[second - 1] = (lumen_option){"short", "! "};
    const lumen_text_config config = {.tokenizer = tokenizer,
                                      .pooling = LUMEN_POOLING_MEAN,
                                      .tokens_max = TOKENS,
                                      .prompt_count = 2,
                                      .prompts = both};
    const lumen_model_config whole = {.name = "texts",
                                      .path = graph,
                                      .text = &config,
                                      .intra_op_threads = 1,
                                      .max_output_bytes = 4096,
                                      .scale = {1, 1, 1}};
    const int code = lm_model_open(&model, ort, &whole, 0, WORKERS);
    CHECK_AT("longest %s: %s", longest_first ? "first" : "last", code ? lm_error_last() : "");
    CHECK(code == 0);
    /* The beginning, ten of the words, the end. */
    CHECK(fabsf(answer_of(&model, ort, first, text) - (1 + 10 * 5 + 2) / 12.0f) < 1e-5f);
    CHECK(fabsf(answer_of(&model, ort, second, text) - (1 + 5 + 9 * 3 + 2) / 12.0f) < 1e-5f);
    const uint8_t *next = (const uint8_t *)model.text->rooms.base + model.text->room_bytes;
    for (uint32_t b = 0; b < LM_PROMPT_BYTES_MAX; b++) CHECK(next[b] == 0); /* the other worker's */
    lm_model_close(&model, ort);
}

int main(void) {
    const char *library = getenv("LUMEN_ORT");
    struct lm_ort ort;
    if (CHECK_UNDER_TSAN)
        check_skip("test_text_model", "ONNX Runtime is not built for ThreadSanitizer");
    if (!library || !library[0])
        check_skip("test_text_model", "LUMEN_ORT does not name libonnxruntime.so");
    make_files();
    CHECK(lm_ort_open(&ort, library) == 0);
    prompts(&ort, true);
    prompts(&ort, false);
    lm_ort_close(&ort);
    return check_finish("test_text_model");
}
