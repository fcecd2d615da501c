/* openai.c: how long a gateway reads a request in OpenAI's form before it knows where it goes.
 *
 *   openai
 *
 * Chat requests of 48 bytes, 4 KiB and 64 KiB, in turns with a copy of the same bytes: a line for
 * each, with the nanoseconds of the median round and the ratio, which is for comparing machines.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "formats/oip_request.h"
#include "formats/openai_request.h"

enum { BYTES_MAX = 64 << 10, ROUNDS = 101, TIMES = 200 };

static char text[BYTES_MAX + LM_OIP_PADDING], copy[BYTES_MAX];

/* A chat of so many bytes, as far as its longest text makes it so long. */
static void write_text(size_t bytes) {
    static const char head[] = "{\"model\":\"chat\",\"messages\":[{\"content\":\"",
                      tail[] = "\"}]}";
    memset(text, 'x', bytes);
    memcpy(text, head, sizeof head - 1);
    memcpy(text + bytes - (sizeof tail - 1), tail, sizeof tail - 1);
}

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double median(uint64_t samples[ROUNDS]) {
    qsort(samples, ROUNDS, sizeof *samples, by_value);
    return (double)samples[ROUNDS / 2] / TIMES;
}

static void measure(struct lm_openai_parser *parser, size_t bytes) {
    static uint64_t read_ns[ROUNDS], copy_ns[ROUNDS];
    struct lm_openai_request request;
    char why[LM_TEXT_BYTES_MAX];
    write_text(bytes);
    for (uint32_t r = 0; r < ROUNDS; r++) {
        const uint64_t start_ns = lm_now_ns();
        for (uint32_t t = 0; t < TIMES; t++) {
            if (lm_openai_read(parser, text, bytes, &request, why, sizeof why)) {
                fprintf(stderr, "openai: %s\n", why);
                exit(1);
            }
        }
        const uint64_t middle_ns = lm_now_ns();
        for (uint32_t t = 0; t < TIMES; t++) {
            memcpy(copy, text, bytes);
            __asm__ volatile("" : : "r"(copy) : "memory"); /* each copy is made */
        }
        read_ns[r] = middle_ns - start_ns;
        copy_ns[r] = lm_now_ns() - middle_ns;
    }
    const double reading = median(read_ns), copying = median(copy_ns);
    printf("%zu bytes: read in %.0f ns, copied in %.0f ns: %.1f times\n", bytes, reading, copying,
           reading / copying);
}

int main(void) {
    struct lm_openai_parser *parser = NULL;
    if (lm_openai_parser_open(&parser, BYTES_MAX)) {
        fprintf(stderr, "openai: %s\n", lm_error_last());
        return 1;
    }
    measure(parser, 48);
    measure(parser, 4 << 10);
    measure(parser, BYTES_MAX);
    lm_openai_parser_close(parser);
    return 0;
}
