/* test_native_reply.c: what the head of a native reply says of a request, and which parts follow
 * it: the expert by its number, times that saturate, outputs without bytes, outputs that are too
 * large.
 */
#include "check.h"
#include "dialects/native.h"

enum { OUTPUTS = 3, MS = 1000000 };

static uint8_t memory[4096] __attribute__((aligned(64)));
static struct lm_slot slot = {.base = memory, .home = memory, .bytes = sizeof memory};
static struct iovec parts[2 + 2 * OUTPUTS];
static uint8_t prefix[64];
static const struct lm_model model = {.output_count = OUTPUTS};
/* Its place in the table was another model's, and has another number since. */
static const struct lm_model expert = {.index = 3, .number = 7000};
static struct lm_request request;

static uint64_t get(uint32_t at, uint32_t bytes) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++) value |= (uint64_t)request.head[at + i] << 8 * i;
    return value;
}

static void begin(void) {
    lm_slot_reset(&slot);
    request = (struct lm_request){.slot = &slot,
                                  .model = &model,
                                  .expert = &expert,
                                  .reply = parts,
                                  .prefix = prefix,
                                  .id = 77,
                                  .sizes.rows = 2,
                                  .width = 4,
                                  .started_ns = 10 * MS,
                                  .received_ns = 11 * MS + 999,
                                  .popped_ns = 13 * MS,
                                  .preprocessed_ns = 16 * MS,
                                  .inferred_ns = 20 * MS};
}

static void says(enum lm_status status, uint64_t payload_bytes) {
    const bool is_ok = status == LM_STATUS_OK;
    CHECK(memcmp(request.head, "LMR1", 4) == 0 && get(4, 2) == status && request.status == status);
    CHECK(get(8, 8) == 77 && get(16, 4) == payload_bytes && get(20, 4) == (is_ok ? 2 : 0));
    CHECK(get(40, 2) == (is_ok ? 4 : 0));
    CHECK(get(42, 2) == (is_ok && request.expert ? 7001 : 0));
}

static void outputs_and_their_shapes(void) {
    static const char first[] = "abc", third[] = "de";
    const void *data[OUTPUTS] = {first, NULL, third};
    const size_t bytes[OUTPUTS] = {3, 0, 2};
    CHECK_AT("outputs");
    begin();
    lm_native_compose_outputs(&request, data, bytes, 0);
    says(LM_STATUS_OK, 5);
    CHECK(get(6, 2) == 0 && request.message.msg_iovlen == 3); /* one is empty */
    CHECK(parts[0].iov_len == LM_NATIVE_REPLY_BYTES && parts[1].iov_base == first &&
          parts[2].iov_base == third && parts[2].iov_len == 2);
    CHECK(get(24, 4) == 1000 && get(28, 4) == 1999 && get(32, 4) == 3000 && get(36, 4) == 4000);
    CHECK_AT("shapes");
    begin();
    request.expert = NULL;
    lm_native_compose_outputs(&request, data, bytes, 12);
    says(LM_STATUS_OK, 17);
    CHECK(get(6, 2) == LM_FLAG_SHAPES && request.message.msg_iovlen == 4);
    CHECK(parts[1].iov_base == prefix && parts[1].iov_len == 12);
}

/* A stage that was never reached took no time, and one of hours takes the most there is. */
static void times_at_their_ends(void) {
    const void *data[OUTPUTS] = {NULL};
    const size_t bytes[OUTPUTS] = {0};
    CHECK_AT("times");
    begin();
    request.popped_ns = request.received_ns - 1;
    request.preprocessed_ns = request.popped_ns + (UINT32_MAX + 1ull) * 1000;
    request.inferred_ns = request.preprocessed_ns + UINT32_MAX * 1000ull;
    lm_native_compose_outputs(&request, data, bytes, 0);
    says(LM_STATUS_OK, 0);
    CHECK(get(28, 4) == 0 && get(32, 4) == UINT32_MAX && get(36, 4) == UINT32_MAX);
}

static void more_than_a_reply_can_say(void) {
    const void *data[OUTPUTS] = {memory, memory, memory};
    size_t bytes[OUTPUTS] = {UINT32_MAX - 1, 0, 1};
    CHECK_AT("4 GiB");
    begin();
    lm_native_compose_outputs(&request, data, bytes, 0);
    says(LM_STATUS_OK, UINT32_MAX);
    bytes[1] = 1;
    begin();
    CHECK(lm_slot_alloc(&slot, sizeof memory) != NULL); /* outputs fill it */
    lm_native_compose_outputs(&request, data, bytes, 0);
    says(LM_STATUS_TOO_LARGE, strlen(parts[1].iov_base));
    CHECK(request.message.msg_iovlen == 2 && strstr(parts[1].iov_base, "at most 4 GiB"));
}

int main(void) {
    outputs_and_their_shapes();
    times_at_their_ends();
    more_than_a_reply_can_say();
    return check_finish("test_native_reply");
}
