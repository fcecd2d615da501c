/* fuzz_http_form.c: any bytes as a form. Its content stands in one of its parts, as a search byte
 * by byte finds them, or there is a sentence. */
#include "fuzz.h"
#include "wire/http_form.h"

/* Where one text next stands in another; `count` where it does not. */
static size_t find(const char *text, size_t at, size_t count, const char *word, size_t bytes) {
    for (; at + bytes <= count; at++)
        if (memcmp(text + at, word, bytes) == 0) return at;
    return count;
}

/* Whether the content of one of the parts begins there. */
static bool begins_part(const char *text, size_t count, size_t line, size_t head) {
    char delimiter[80] = "\r\n";
    memcpy(delimiter + 2, text, line);
    for (size_t at = 0; at < count;) {
        size_t end = find(text, at, count, "\r\n\r\n", 4);
        if (end + 4 == head) return true;
        at = end + 2 < count ? find(text, end + 2, count, delimiter, line + 2) : count;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    char *text = fuzz_copy(input, count), why[256] = "";
    size_t head = lm_http_form_head(text, count), line = find(text, 0, count, "\r", 1);
    HOLDS(head <= count && head <= 4096);
    if (head > 0) HOLDS(line >= 3 && line <= 72 && begins_part(text, count, line, head));
    if (lm_http_form_is(text, count)) {
        struct lm_slice found = lm_http_form_content(text, count, head, why, sizeof why);
        size_t at = head;
        HOLDS((found.at == NULL) == (why[0] != '\0'));
        if (found.at) {
            HOLDS(head > 0 && found.at == text + head);
            for (; memcmp(text + at, "\r\n", 2) != 0 || memcmp(text + at + 2, text, line);) at++;
            HOLDS(at == head + found.bytes && at + 2 + line <= count);
        }
    }
    free(text);
    return 0;
}
