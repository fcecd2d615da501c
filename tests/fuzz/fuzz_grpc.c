/* fuzz_grpc.c (row 49): any bytes as messages of gRPC, behind a byte that says which method's. What
 * becomes of them keeps its bounds; JSON that is made of them is read back as a message; and a
 * message whose tensors may go to the slot as they come says the same as one that is unpacked
 * whole. */
#include <stdio.h>

#include "base/limits.h"
#include "formats/grpc_describe.h"
#include "formats/grpc_infer.h"
#include "formats/grpc_message.h"
#include "formats/grpc_route.h"
#include "fuzz.h"

enum { ROOM = 1 << 16 };
static char json[ROOM], line[ROOM], whole[ROOM];
static uint8_t message[8 * ROOM];

/* A path of visible letters, and JSON whose strings and brackets are whole. */
static void check_route(enum lm_grpc_method_index method, const uint8_t *bytes, size_t count) {
    struct lm_grpc_text path = {.at = line, .end = line + sizeof line};
    struct lm_grpc_text body = {.at = json, .end = json + sizeof json};
    const char *why = lm_grpc_route(method, bytes, count, &path, &body);
    if (why) return;
    HOLDS(path.at - line > 11 && memcmp(path.at - 11, " HTTP/1.1\r\n", 11) == 0);
    for (const char *at = strchr(line, ' ') + 1; at < path.at - 11; at++)
        HOLDS(*at > ' ' && *at < 0x7f);
    if (body.at == json || !lm_grpc_methods[method].request) return;
    struct lm_pb_writer writer = {.at = message, .end = message + sizeof message};
    char *text = fuzz_copy(json, (size_t)(body.at - json));
    /* Read as another message: whatever it says, nothing breaks. */
    (void)lm_grpc_from_json(LM_GRPC_MODEL_CONFIG, text, (size_t)(body.at - json), &writer);
    free(text);
}

static void check_inference(const uint8_t *bytes, size_t count) {
    size_t scanned = 0, begins = 0, unpacked = 0, json_bytes = 0;
    uint64_t tensor = 0;
    char why[256] = "";
    struct lm_grpc_plan plan;
    for (size_t have = 0; have < count; have++) { /* in pieces: the same */
        if (lm_grpc_scan_head(bytes, have, count, &scanned, &tensor, &begins)) break;
        HOLDS(scanned <= have);
    }
    HOLDS(lm_grpc_scan_head(bytes, count, count, &scanned, &tensor, &begins));
    size_t again = 0, begins_again = 0;
    uint64_t tensor_again = 0;
    (void)lm_grpc_scan_head(bytes, count, count, &again, &tensor_again, &begins_again);
    HOLDS(again == scanned && tensor_again == tensor && begins_again == begins);
    const size_t fields = tensor == UINT64_MAX ? count : scanned;
    const bool is_good = lm_grpc_plan(bytes, fields, count - fields, tensor, json, sizeof json,
                                      &plan, why, sizeof why);
    HOLDS(is_good || why[0]);
    const enum lm_status status =
        lm_grpc_unpack(bytes, count, whole, sizeof whole, &unpacked, &json_bytes, why, sizeof why);
    HOLDS(status == LM_STATUS_OK || why[0]);
    if (status == LM_STATUS_OK) HOLDS(json_bytes <= unpacked && unpacked <= sizeof whole);
    if (!is_good || !plan.is_plain || status != LM_STATUS_OK) return;
    HOLDS(plan.json_bytes == json_bytes && memcmp(json, whole, json_bytes) == 0);
    size_t tensors = 0;
    for (uint32_t b = 0; b < plan.blob_count; b++) tensors += plan.blobs[b];
    HOLDS(unpacked - json_bytes == tensors);
}

/* As a reply of HTTP: this server's own JSON, but cut and changed. */
static void check_replies(const char *text, size_t count) {
    uint64_t sizes[LM_TENSORS_MAX];
    char why[256];
    for (uint32_t m = 0; m < LM_GRPC_METHODS; m++) {
        struct lm_pb_writer writer = {.at = message, .end = message + sizeof message};
        if (lm_grpc_methods[m].reply)
            (void)lm_grpc_from_json((enum lm_grpc_method_index)m, text, count, &writer);
    }
    struct lm_pb_writer writer = {.at = message, .end = message + sizeof message};
    HOLDS(lm_grpc_from_infer_json(text, count, &writer, sizes) <= LM_TENSORS_MAX);
    lm_grpc_error_text(text, count, why, sizeof why);
    HOLDS(memchr(why, '\0', sizeof why));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    if (count == 0) return 0;
    const uint32_t which = input[0] % (LM_GRPC_METHODS + 1);
    uint8_t *bytes = fuzz_copy(input + 1, count - 1);
    struct lm_pb_writer writer = {.at = message, .end = message + sizeof message};
    if (which == LM_GRPC_METHODS) {
        check_replies((const char *)bytes, count - 1);
    } else if (which == LM_GRPC_REFLECT || which == LM_GRPC_REFLECT_ALPHA) {
        (void)lm_grpc_describe(bytes, count - 1, &writer);
    } else {
        check_route((enum lm_grpc_method_index)which, bytes, count - 1);
        if (lm_grpc_infers((enum lm_grpc_method_index)which)) check_inference(bytes, count - 1);
    }
    free(bytes);
    return 0;
}
