/* fuzz_http_response.c: any bytes as the head of an answer, whole and in two pieces: the same is
 * found, every field that is passed on is a line of the head, and none is about the connection. Row
 * 51 of the project's list of hostile inputs. */
#include "fuzz.h"
#include "wire/http_response.h"
#include "wire/http_scan.h"

static void check_fields(const char *text, size_t head, const struct lm_http_response *response) {
    static const char *const kept[] = {"connection", "content-length", "transfer-encoding",
                                       "upgrade"};
    struct lm_slice left = response->fields;
    struct lm_http_field field;
    while (lm_http_next_passed(&left, &field)) {
        HOLDS(field.name.bytes > 0 && field.name.at >= text);
        HOLDS(field.value.at + field.value.bytes <= text + head);
        for (size_t i = 0; i < field.value.bytes; i++)
            HOLDS(lm_http_is_plain(field.value.at[i], ' ', true));
        for (size_t k = 0; k < sizeof kept / sizeof kept[0]; k++)
            HOLDS(!lm_slice_is(field.name, kept[k]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    char *text = fuzz_copy(input, count), why[256] = "";
    struct lm_http_response response, again;
    uint64_t seed = fuzz_seed(input, count);
    const int used = lm_http_parse_response(text, count, false, &response, why, sizeof why);
    HOLDS((why[0] != '\0') == (used < 0));
    HOLDS(used <= (int)count);
    if (used > 0) {
        HOLDS(response.status >= 100 && response.status <= 599);
        HOLDS(used >= 4 && memcmp(text + used - 4, "\r\n\r\n", 4) == 0);
        HOLDS(response.framing == LM_HTTP_FRAMED_BY_LENGTH || response.length == 0 ||
              response.framing == LM_HTTP_FRAMED_BY_CLOSE);
        check_fields(text, (size_t)used, &response);
        /* What follows the head does not count, and of less there is none yet. */
        char *head = fuzz_copy(text, (size_t)used);
        HOLDS(lm_http_parse_response(head, (size_t)used, false, &again, why, sizeof why) == used);
        HOLDS(again.status == response.status && again.framing == response.framing);
        free(head);
        const size_t less = fuzz_below(&seed, (size_t)used);
        char *piece = fuzz_copy(text, less);
        HOLDS(lm_http_parse_response(piece, less, false, &again, why, sizeof why) <= 0);
        free(piece);
    }
    free(text);
    return 0;
}
