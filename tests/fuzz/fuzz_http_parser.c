/* fuzz_http_parser.c: any bytes as an HTTP request: its head, then its chunks, then its route; and
 * the same bytes as chunks and as a target. What came in pieces must be read as what came whole. */
#include "base/limits.h"
#include "formats/http_route.h"
#include "fuzz.h"
#include "wire/http_chunks.h"
#include "wire/http_parser.h"

enum { SLICES = 8, SPLITS = 6 };

struct head_answer {
    int verdict;
    char why[192];
    uint64_t numbers[8];
    uint64_t slices[SLICES][2];
};

static void check_sentence(const char *why, size_t why_bytes, int verdict) {
    HOLDS((why[0] != '\0') == (verdict < 0));
    HOLDS(strlen(why) < why_bytes - 1);
    for (; *why; why++) HOLDS(*why >= ' ' && *why < 0x7f);
}

/* Answers are compared as bytes: places in place of pointers. */
static void ask_head(const void *text, size_t count, size_t seen, struct head_answer *answer) {
    struct lm_http_head head;
    char *bytes = fuzz_copy(text, count);
    memset(answer, 0, sizeof *answer);
    answer->verdict =
        lm_http_parse_head(bytes, count, seen, &head, answer->why, sizeof answer->why);
    check_sentence(answer->why, sizeof answer->why, answer->verdict);
    if (answer->verdict > 0) {
        const struct lm_slice slices[SLICES] = {
            head.method_name,     head.target,          head.host,
            head.authorization,   head.api_key,         head.origin,
            head.accept_encoding, head.content_encoding};
        uint64_t numbers[8] = {
            head.method,     head.minor,           head.keep_alive,     head.chunked,
            head.has_length, head.expect_continue, head.content_length, (uint64_t)head.json_bytes};
        HOLDS((size_t)answer->verdict <= count && answer->verdict <= LM_HTTP_HEAD_BYTES_MAX);
        HOLDS(!(head.chunked && head.has_length) && (head.has_length || head.content_length == 0));
        HOLDS(head.content_length <= INT64_MAX && head.json_bytes >= LM_HTTP_JSON_BAD);
        HOLDS(head.minor <= 1 && (head.minor == 0 || head.host.at));
        memcpy(answer->numbers, numbers, sizeof numbers);
        for (int i = 0; i < SLICES; i++) {
            const char *at = slices[i].at;
            HOLDS(at || slices[i].bytes == 0);
            if (at) HOLDS(at >= bytes && at + slices[i].bytes <= bytes + answer->verdict);
            answer->slices[i][0] = at ? 1 + (uint64_t)(at - bytes) : 0;
            answer->slices[i][1] = slices[i].bytes;
        }
    } else if (answer->verdict == 0) {
        HOLDS(count < LM_HTTP_HEAD_BYTES_MAX);
    } else {
        int status = -answer->verdict;
        HOLDS(status == 400 || status == 414 || status == 417 || status == 431 || status == 501 ||
              status == 505);
    }
    free(bytes);
}

struct body_answer {
    int verdict;
    char why[192];
    size_t used;
    size_t data_bytes;
    uint64_t data_hash;
    uint32_t chunk_count;
};

/* Fed in random pieces, or at once when there is no `random`. */
static void ask_body(const char *text, size_t count, uint64_t *random, struct body_answer *answer) {
    struct lm_http_chunks chunks;
    struct lm_slice data;
    memset(&chunks, 0, sizeof chunks);
    memset(answer, 0, sizeof *answer);
    answer->data_hash = 7;
    do {
        size_t left = count - answer->used, used;
        size_t given = random ? fuzz_below(random, left + 1) : left;
        if (given > 8 && random && fuzz_below(random, 2)) given = fuzz_below(random, 8) + 1;
        char *bytes = fuzz_copy(text + answer->used, given);
        answer->verdict = lm_http_chunks_feed(&chunks, bytes, given, &used, &data, answer->why,
                                              sizeof answer->why);
        HOLDS(used <= given);
        HOLDS((data.at != NULL) == (answer->verdict == LM_HTTP_CHUNKS_DATA));
        HOLDS(answer->verdict != LM_HTTP_CHUNKS_MORE || used == given);
        HOLDS(answer->verdict >= 0 || answer->verdict == -400);
        if (data.at)
            HOLDS(data.bytes > 0 && data.at >= bytes && data.at + data.bytes == bytes + used);
        for (size_t i = 0; i < data.bytes; i++)
            answer->data_hash = (answer->data_hash ^ (uint8_t)data.at[i]) * 0x100000001b3u;
        answer->data_bytes += data.bytes;
        answer->used += used;
        free(bytes);
    } while (answer->verdict >= 0 && answer->verdict != LM_HTTP_CHUNKS_DONE &&
             answer->used < count);
    if (answer->verdict == LM_HTTP_CHUNKS_DATA) answer->verdict = LM_HTTP_CHUNKS_MORE;
    answer->chunk_count = chunks.chunk_count;
    HOLDS(chunks.chunk_count <= LM_HTTP_CHUNKS_MAX && chunks.chunk_count <= count);
    check_sentence(answer->why, sizeof answer->why, answer->verdict);
}

static void check_body(const char *text, size_t count, uint64_t *random) {
    struct body_answer whole, pieces;
    ask_body(text, count, NULL, &whole);
    for (int i = 0; i < 2; i++) {
        ask_body(text, count, random, &pieces);
        HOLDS(memcmp(&whole, &pieces, sizeof whole) == 0);
    }
}

static void check_route(const struct lm_http_head *head) {
    struct lm_http_match match;
    int status = lm_http_find_route(head, &match);
    HOLDS(status == 200 || status == 400 || status == 404 || status == 405 || status == 421 ||
          status == 501);
    HOLDS(status != 405 || match.allow);
    HOLDS(match.why &&
          match.host.bytes <= (head->host.at ? head->host.bytes : 0) + head->target.bytes);
    if (status != 200) return;
    HOLDS((int)match.route < (int)LM_ROUTE_COUNT);
    HOLDS(match.name_bytes < LM_NAME_BYTES_MAX && match.name_bytes == strlen(match.name));
    for (const char *at = match.name; *at; at++) HOLDS(*at >= ' ' && *at < 0x7f && *at != '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    uint64_t random = fuzz_seed(input, count);
    struct head_answer whole, split;
    ask_head(input, count, 0, &whole);
    for (int i = 0; i < SPLITS; i++) {
        size_t seen = 0, given = 0; /* up to three pieces, the last one ending where all does */
        for (int piece = 0; piece < 3; piece++) {
            given = piece == 2 ? count : given + fuzz_below(&random, count - given + 1);
            ask_head(input, given, seen, &split);
            if (split.verdict != 0) break;
            seen = given;
        }
        HOLDS(memcmp(&whole, &split, sizeof whole) == 0);
    }
    char *bytes = fuzz_copy(input, count);
    struct lm_http_head head;
    char why[192];
    int head_bytes = lm_http_parse_head(bytes, count, 0, &head, why, sizeof why);
    if (head_bytes > 0) {
        check_route(&head);
        if (head.chunked) check_body(bytes + head_bytes, count - (size_t)head_bytes, &random);
    }
    check_body(bytes, count, &random);
    for (int method = LM_HTTP_GET; method <= LM_HTTP_OTHER; method++) {
        head = (struct lm_http_head){.method = (enum lm_http_method)method,
                                     .method_name = {bytes, count < 5 ? count : 5},
                                     .target = {bytes, count}};
        check_route(&head);
    }
    free(bytes);
    return 0;
}
