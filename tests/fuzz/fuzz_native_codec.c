/* fuzz_native_codec.c: any bytes as the header of a native request (row 22 of docs/SECURITY.md). */
#include "base/native_codec.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    struct lm_native_request request;
    char why[128] = "";
    uint8_t *bytes =
        fuzz_copy(input, count < LM_NATIVE_REQUEST_BYTES ? count : LM_NATIVE_REQUEST_BYTES);
    for (size_t given = 1; given <= count && given < 8; given++) /* told no later with more bytes */
        HOLDS(lm_native_may_be_header(bytes, given) <= lm_native_may_be_header(bytes, given - 1));
    if (count >= LM_NATIVE_REQUEST_BYTES) {
        enum lm_native_verdict verdict = lm_native_parse(bytes, &request, why, sizeof why);
        HOLDS((verdict == LM_NATIVE_OK) == (why[0] == '\0'));
        HOLDS((verdict == LM_NATIVE_NO_FRAME) ==
              !lm_native_may_be_header(bytes, LM_NATIVE_REQUEST_BYTES));
        HOLDS(strlen(why) < sizeof why - 1);
        HOLDS(request.rows != 0);
        if (verdict == LM_NATIVE_OK) {
            HOLDS(request.kind >= LM_KIND_INFER && request.kind <= LM_KIND_REGION);
            HOLDS(request.flags <= (LM_FLAG_CREDENTIAL | LM_FLAG_SHAPES | LM_FLAG_REGION));
            HOLDS(request.kind == LM_KIND_INFER || request.payload_bytes <= 32);
            HOLDS(memcmp(bytes + 8, &request.id, 8) == 0);
        }
    }
    free(bytes);
    return 0;
}
