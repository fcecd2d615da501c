/* test_texts_reply.c: replies to requests of texts, to the letter, in as much memory as their
 * bounds say, which ends at unreadable pages. What models of texts answer is tested by
 * tests/e2e/models/test_e2e_texts.py. */
#include <math.h>

#include "check.h"
#include "formats/http_route.h"
#include "formats/texts_reply.h"
#include "models/text_model.h"

enum { ROWS_MAX = 300, ROOM = 64 << 10 };

static struct lm_text_model text;
static struct lm_model model = {.base = "m", .text = &text};
static struct lm_texts_wish wish;
static float values[ROWS_MAX];
static int32_t tokens[ROWS_MAX];
static struct check_guard json_guard, scratch_guard;
static char said[ROOM], expected[ROOM];

/* Some texts of `count` values each. */
static void begin(uint32_t task, uint32_t count) {
    text = (struct lm_text_model){.task = task, .values = count};
    wish = (struct lm_texts_wish){0};
}

/* The reply is `expected`. */
static void replies(uint8_t route, uint32_t rows, const void *texts, size_t text_bytes) {
    const struct lm_oip_output outputs[2] = {
        {.data = values, .bytes = (size_t)rows * text.values * sizeof *values},
        {.data = tokens, .bytes = rows * sizeof *tokens}};
    const struct lm_texts_answer answer = {&model, &wish, route, rows, outputs, texts, text_bytes};
    size_t json_bytes = 0, scratch_bytes = 0, bytes = 0;
    char why[LM_TEXT_BYTES_MAX] = "";
    CHECK(lm_texts_reply_bytes_max(&answer, &json_bytes, &scratch_bytes));
    CHECK(json_bytes < ROOM && scratch_bytes < ROOM);
    const struct lm_oip_room room = {.json = (char *)check_guard_tail(&json_guard, json_bytes),
                                     .json_bytes = json_bytes,
                                     .scratch = check_guard_tail(&scratch_guard, scratch_bytes),
                                     .scratch_bytes = scratch_bytes};
    CHECK(lm_texts_reply(&answer, &room, &bytes, why, sizeof why) == LM_STATUS_OK);
    CHECK(bytes <= json_bytes);
    memcpy(said, room.json, bytes);
    said[bytes] = '\0';
    CHECK_AT("%.140s", said);
    CHECK(strcmp(said, expected) == 0);
}

/* More texts than each has values; those of one score stay in their order. */
static void rankings(void) {
    static const char two[] = "\1\0\0\0a\2\0\0\0\"b";
    size_t used = 0;
    begin(LUMEN_TEXT_SCORES, 1);
    for (uint32_t row = 0; row < ROWS_MAX; row++) {
        values[row] = (float)(row % 3);
        tokens[row] = 2;
    }
    wish.is_list = true;
    for (uint32_t score = 3; score-- > 0;)
        for (uint32_t row = score; row < ROWS_MAX; row += 3)
            used += (size_t)snprintf(expected + used, sizeof expected - used,
                                     "%s{\"index\":%u,\"score\":%u}", used ? "," : "[", row, score);
    snprintf(expected + used, sizeof expected - used, "]");
    replies(LM_ROUTE_RERANK, ROWS_MAX, NULL, 0);
    wish = (struct lm_texts_wish){.top = 1, .with_texts = true};
    snprintf(expected, sizeof expected,
             "{\"model\":\"m\",\"results\":[{\"index\":1,\"document\":{\"text\":\"\\\"b\"},"
             "\"relevance_score\":1}],\"meta\":{\"api_version\":{\"version\":\"2\"},"
             "\"billed_units\":{\"search_units\":1}},\"usage\":{\"total_tokens\":4}}");
    replies(LM_ROUTE_RERANK_V2, 2, two, sizeof two - 1);
    wish = (struct lm_texts_wish){.top = 2, .is_list = true}; /* what is no number comes last */
    memcpy(values, (float[]){3, 1, NAN, 2}, 4 * sizeof *values);
    snprintf(expected, sizeof expected, "[{\"index\":0,\"score\":3},{\"index\":3,\"score\":2}]");
    replies(LM_ROUTE_RERANK, 4, NULL, 0);
}

/* More values than texts, and labels that double where they are escaped. */
static void labels(void) {
    static const char lines[] = "\"\"\"\"\"\"\"\"\n\\\\\\\\\\\\\\\\\nplain\n";
    begin(LUMEN_TEXT_SCORES, 3);
    CHECK(lm_labels_open(&model.labels, lines, sizeof lines - 1) == 0);
    values[0] = values[2] = 0.25f;
    values[1] = 0.5f;
    snprintf(expected, sizeof expected,
             "[{\"score\":0.5,\"label\":\"\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\"},"
             "{\"score\":0.25,\"label\":\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\"},"
             "{\"score\":0.25,\"label\":\"plain\"}]");
    replies(LM_ROUTE_PREDICT_TEXT, 1, NULL, 0);
    lm_labels_close(&model.labels);
}

/* The first numbers of vectors, of length 1. */
static void embeddings(void) {
    static const float vectors[] = {3, 4, 12, 0, -2, 9};
    begin(LUMEN_TEXT_EMBEDDING, 3);
    memcpy(values, vectors, sizeof vectors);
    wish.dimensions = 2;
    wish.normalises = true;
    snprintf(expected, sizeof expected, "[[0.6,0.8],[0,-1]]");
    replies(LM_ROUTE_EMBED, 2, NULL, 0);
    wish = (struct lm_texts_wish){0};
    snprintf(expected, sizeof expected, "[[3,4,12],[0,-2,9]]");
    replies(LM_ROUTE_EMBED, 2, NULL, 0);
}

int main(void) {
    check_watchdog(120, "replies to texts");
    check_guard_open(&json_guard, ROOM);
    check_guard_open(&scratch_guard, ROOM);
    rankings();
    labels();
    embeddings();
    check_guard_close(&scratch_guard);
    check_guard_close(&json_guard);
    return check_finish("test_texts_reply");
}
