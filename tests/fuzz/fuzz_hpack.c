/* fuzz_hpack.c: any bytes as header blocks of one connection, each behind a byte that says how long
 * it is. The table keeps its bounds, and a head that is written of good fields is one that
 * HTTP/1.1's reader takes to its last byte, or refuses with a sentence; as the head of an answer
 * too. Where nghttp2 is installed, it reads the same fields and refuses the same blocks. */
#include <dlfcn.h>

#include "fuzz.h"
#include "wire/http2_head.h"
#include "wire/http_response.h"

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
        HOLDS(request.content == UINT64_MAX || request.is_grpc || /* whose head is another's */
              read.content_length == request.content);
    }
    free(text);
}

/* The same as the head of an answer. */
static void check_answer(bool ends) {
    struct lm_http_response read;
    char why[512] = "";
    const size_t bytes = lm_http2_answer_head(&fields, ends, head, sizeof head, why, sizeof why);
    HOLDS(bytes <= sizeof head && (bytes > 0 || why[0] != '\0'));
    if (bytes == 0) return;
    char *text = fuzz_copy(head, bytes);
    const int used = lm_http_parse_response(text, bytes, false, &read, why, sizeof why);
    HOLDS(used < 0 ? why[0] != '\0' : (size_t)used == bytes);
    HOLDS(used < 0 || read.framing != LM_HTTP_FRAMED_BY_CHUNKS);
    HOLDS(used < 0 || !ends || read.framing == LM_HTTP_FRAMED_BY_LENGTH);
    free(text);
}

/* ---- nghttp2 ---- */

struct nghttp2_field {
    uint8_t *name, *value;
    size_t name_bytes, value_bytes;
    uint8_t flags;
};
enum { NGHTTP2_FINAL = 1, NGHTTP2_EMIT = 2 };

/* Functions of libnghttp2.so.14, as its manual has them. */
static int (*inflate_new)(void **);
static ssize_t (*inflate)(void *, struct nghttp2_field *, int *, const uint8_t *, size_t, int);
static int (*inflate_end)(void *);
static void (*inflate_del)(void *);

static bool has_nghttp2(void) {
    static bool was_asked;
    if (was_asked) return inflate_new;
    was_asked = true;
    void *library = dlopen("libnghttp2.so.14", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "hpack: not compared with nghttp2: %s\n", dlerror());
        return false;
    }
    *(void **)&inflate_new = dlsym(library, "nghttp2_hd_inflate_new");
    *(void **)&inflate = dlsym(library, "nghttp2_hd_inflate_hd2");
    *(void **)&inflate_end = dlsym(library, "nghttp2_hd_inflate_end_headers");
    *(void **)&inflate_del = dlsym(library, "nghttp2_hd_inflate_del");
    HOLDS(inflate_new && inflate && inflate_end && inflate_del);
    return true;
}

static bool is_same(struct lm_slice ours, const uint8_t *theirs, size_t bytes) {
    return ours.bytes == bytes && (bytes == 0 || memcmp(ours.at, theirs, bytes) == 0);
}

static void check_with_nghttp2(void *inflater, const uint8_t *block, size_t bytes, bool is_good) {
    uint32_t count = 0;
    size_t at = 0;
    int flags = 0;
    while (!(flags & NGHTTP2_FINAL)) {
        struct nghttp2_field field;
        flags = 0;
        const ssize_t used = inflate(inflater, &field, &flags, block + at, bytes - at, 1);
        if (used < 0) {
            HOLDS(!is_good);
            return;
        }
        at += (size_t)used;
        if (!(flags & NGHTTP2_EMIT)) {
            if (used == 0 && !(flags & NGHTTP2_FINAL)) break;
            continue;
        }
        if (is_good && count < fields.count) {
            HOLDS(is_same(fields.list[count].name, field.name, field.name_bytes));
            HOLDS(is_same(fields.list[count].value, field.value, field.value_bytes));
        }
        count++;
    }
    HOLDS(is_good && at == bytes);
    HOLDS(fields.too_large ? count > fields.count : count == fields.count);
    inflate_end(inflater);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    struct lm_hpack hpack = {
        .table = &table, .size = LM_HPACK_TABLE_BYTES, .limit = LM_HPACK_TABLE_BYTES};
    char why[256] = "";
    void *inflater = NULL;
    table = (struct lm_hpack_table){0};
    if (has_nghttp2()) HOLDS(inflate_new(&inflater) == 0);
    while (count > 0) {
        size_t bytes = input[0] < count - 1 ? input[0] : count - 1;
        uint8_t *block = fuzz_copy(input + 1, bytes);
        const bool is_good = lm_hpack_decode(&hpack, block, bytes, &fields, why, sizeof why);
        HOLDS(is_good || why[0] != '\0');
        if (is_good) check_fields();
        check_table();
        if (inflater) check_with_nghttp2(inflater, block, bytes, is_good);
        if (is_good) check_head(bytes % 2);
        check_answer(bytes % 2);
        free(block);
        if (!is_good) break;
        input += 1 + bytes;
        count -= 1 + bytes;
    }
    if (inflater) inflate_del(inflater);
    return 0;
}
