/* fuzz_hpack.c: any bytes as header blocks of one connection, each behind a byte that says how long
 * it is. The table keeps its bounds, and a head that is written of good fields is one that
 * HTTP/1.1's reader takes to its last byte, or refuses with a sentence. */
#include "fuzz.h"
#include "wire/http2_head.h"

static struct lm_hpack_table table;
static struct lm_hpack_fields fields;
static char head[LM_HTTP_HEAD_BYTES_MAX];

static void check_fields(void) {
    HOLDS(fields.count <= LM_HTTP_HEADERS_MAX && fields.used <= sizeof fields.room);
    for (uint32_t f = 0; f < fields.count; f++) { /* every byte may be read */
        const struct lm_slice *both[] = {&fields.list[f].name, &fields.list[f].value};
        for (int s = 0; s < 2; s++)
            if (both[s]->bytes) free(fuzz_copy(both[s]->at, both[s]->bytes));
    }
}

static void check_table(void) {
    size_t used = 0;
    for (uint32_t e = 0; e < table.count; e++) {
        const uint32_t at = (table.next + LM_HPACK_ENTRIES - 1 - e) % LM_HPACK_ENTRIES;
        used += table.entries[at].name_bytes + table.entries[at].value_bytes + LM_HPACK_OVERHEAD;
    }
    HOLDS(table.count <= LM_HPACK_ENTRIES && used == table.used && used <= LM_HPACK_TABLE_BYTES);
}

static void check_head(bool has_body) {
    struct lm_http2_request request;
    struct lm_http_head read;
    char why[256] = "";
    if (lm_http2_request_head(&fields, has_body, head, sizeof head, &request) != LM_HTTP2_HEAD_GOOD)
        return;
    HOLDS(request.bytes <= sizeof head && !fields.too_large);
    char *text = fuzz_copy(head, request.bytes);
    int used = lm_http_parse_head(text, request.bytes, 0, &read, why, sizeof why);
    HOLDS(used < 0 ? why[0] != '\0' : (size_t)used == request.bytes);
    if (used > 0) {
        HOLDS(!read.keep_alive && !read.expect_continue && read.chunked == request.is_chunked);
        HOLDS(request.content == UINT64_MAX || read.content_length == request.content);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    struct lm_hpack hpack = {
        .table = &table, .size = LM_HPACK_TABLE_BYTES, .limit = LM_HPACK_TABLE_BYTES};
    char why[256] = "";
    table = (struct lm_hpack_table){0};
    while (count > 0) {
        size_t bytes = input[0] < count - 1 ? input[0] : count - 1;
        uint8_t *block = fuzz_copy(input + 1, bytes);
        const bool is_good = lm_hpack_decode(&hpack, block, bytes, &fields, why, sizeof why);
        HOLDS(is_good || why[0] != '\0');
        if (is_good) check_fields();
        check_table();
        if (is_good) check_head(bytes % 2);
        free(block);
        if (!is_good) break;
        input += 1 + bytes;
        count -= 1 + bytes;
    }
    return 0;
}
