/* http_answers.c: says what Lumen's HTTP parser makes of requests, for test_http_differential.py.
 *
 * Reads inputs from stdin, each after its length as 4 little-endian bytes. Prints a line for each:
 * verdict, method, target, minor version, keep-alive, Content-Length (-1: none), chunked; what the
 * body's chunks came to (a verdict of http_chunks.h) and the bytes they took; the body in
 * hexadecimal; the reason of a refusal. Fields are separated by tabs; empty when they do not apply.
 */
#include "base/limits.h"
#include "wire/http_chunks.h"
#include "wire/http_parser.h"

#include "fuzz.h"

static void print_body(struct lm_slice body) {
    for (size_t i = 0; i < body.bytes; i++) printf("%02x", (uint8_t)body.at[i]);
}

/* The whole body is there or what there is of it: up to its end or the first bad byte. */
static void print_chunks(const char *at, size_t count, char *why, size_t why_bytes) {
    struct lm_http_chunks chunks = {0};
    struct lm_slice data;
    size_t used, used_before = 0;
    char *body = fuzz_copy(at, count);
    size_t body_bytes = 0;
    int verdict;
    do {
        verdict = lm_http_chunks_feed(&chunks, at + used_before, count - used_before, &used, &data,
                                      why, why_bytes);
        if (data.at) memcpy(body + body_bytes, data.at, data.bytes);
        body_bytes += data.bytes;
        used_before += used;
    } while (verdict == LM_HTTP_CHUNKS_DATA);
    printf("\t%d\t%zu\t", verdict, used_before);
    print_body((struct lm_slice){body, body_bytes});
    free(body);
}

static void answer(const char *bytes, size_t count) {
    struct lm_http_head head;
    char why[256] = "";
    int verdict = lm_http_parse_head(bytes, count, 0, &head, why, sizeof why);
    if (verdict <= 0) {
        printf("%d\t\t\t\t\t\t\t\t\t\t%s\n", verdict, why);
        return;
    }
    printf("%d\t%.*s\t%.*s\t%d\t%d\t%lld\t%d", verdict, (int)head.method_name.bytes,
           head.method_name.at, (int)head.target.bytes, head.target.at, head.minor, head.keep_alive,
           head.has_length ? (long long)head.content_length : -1, head.chunked);
    if (head.chunked)
        print_chunks(bytes + verdict, count - (size_t)verdict, why, sizeof why);
    else
        printf("\t\t\t");
    printf("\t%s\n", why);
}

int main(void) {
    uint8_t length[4];
    while (fread(length, 1, sizeof length, stdin) == sizeof length) {
        size_t count =
            length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
        HOLDS(count < 1 << 24);
        char *bytes = malloc(count ? count : 1);
        HOLDS(bytes && fread(bytes, 1, count, stdin) == count);
        answer(bytes, count);
        fflush(stdout);
        free(bytes);
    }
    return 0;
}
