/* tokenizer.c: how long a tokenizer takes for a text.
 *
 *   tokenizer TOKENIZER_FILE TEXT_FILE
 *
 * For each number on standard input the text is read that many times; the answer is a line with the
 * nanoseconds of CPU time of one reading, and the number of its tokens. Started by
 * bench/micro/tokenizer.py, which lets the wheel `tokenizers` read the same text in turn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "base/memory.h"
#include "text/encode.h"
#include "text/pieces.h"

enum { TOKENS_MAX = 1 << 20 };

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "tokenizer: %s\n", what);
    exit(1);
}

static double cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char **argv) {
    struct lm_mapping file = {0}, text = {0};
    struct lm_tokenizer tokenizer;
    if (argc != 3) fail("expected TOKENIZER_FILE TEXT_FILE");
    if (lm_file_map(&file, argv[1]) || lm_file_map(&text, argv[2])) fail(lm_error_last());
    if (lm_tokenizer_open(&tokenizer, file.base, file.bytes)) fail(lm_error_last());
    int64_t *ids = calloc(2 * (size_t)TOKENS_MAX, sizeof *ids);
    void *scratch = malloc(lm_text_scratch_bytes(&tokenizer, false) + 1);
    if (!ids || !scratch) fail("no memory");
    const struct lm_text_room room = {ids, ids + TOKENS_MAX, NULL, TOKENS_MAX, scratch, NULL};
    const struct lm_text whole = {text.base, text.bytes}, none = {0};
    uint32_t times, count = 0;
    while (scanf("%u", &times) == 1) {
        const double start = cpu_ns();
        for (uint32_t i = 0; i < times; i++)
            count = lm_text_encode(&tokenizer, whole, none, TOKENS_MAX, LM_TEXT_CUT_END, &room);
        if (count > TOKENS_MAX) fail("the text is no UTF-8");
        printf("%.1f %u\n", (cpu_ns() - start) / times, count);
        fflush(stdout);
    }
    return 0;
}
