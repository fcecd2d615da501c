/* test_gate.c: which buckets a request takes from: one that was let in before its model was there
 * takes from its model's alone.
 */
#include "check.h"
#include "flow/gate.h"

enum { BURST = 2, START_NS = 1000 };

static struct lm_shared shared;
static struct lm_model model = {.name = "m", .base = "m"};
static struct lm_io thread = {.shared = &shared, .now_ns = START_NS};

static bool enters(void) {
    struct lm_refusal refusal = {0};
    const bool may = lm_gate_enter(&thread, &model, LM_NO_KEY, &refusal);
    CHECK(may || (refusal.status == LM_STATUS_RATE_LIMITED && refusal.retry_after_s >= 1));
    return may;
}

static bool enters_later(void) {
    struct lm_refusal refusal = {0};
    const bool may = lm_gate_enter_model(&thread, &model, LM_NO_KEY, &refusal);
    CHECK(may || refusal.status == LM_STATUS_RATE_LIMITED);
    CHECK(may || strstr(refusal.why, "the rate of this model"));
    return may;
}

static void begin(uint32_t of_server) {
    const lumen_config config = {.rate = 1e-3, .burst = of_server};
    const lumen_model_config of_model = {.name = "m", .rate = 1e-3, .burst = BURST};
    CHECK(lm_access_open(&thread.access, &config, NULL, START_NS) == 0);
    CHECK(lm_access_set_model(thread.access, 0, &of_model, NULL, START_NS) == 0);
}

int main(void) {
    CHECK_AT("its model's rate");
    begin(1);
    for (uint32_t n = 0; n < BURST; n++) CHECK(enters_later());
    CHECK(!enters_later());
    CHECK(lm_token_bucket_wait_ns(&thread.access->bucket, 1, START_NS) == 0);
    lm_access_close(thread.access);
    CHECK_AT("both rates");
    begin(1);
    CHECK(enters() && !enters()); /* the server has one, and the model's second is spent for it */
    CHECK(!enters_later());
    lm_access_close(thread.access);
    return check_finish("test_gate");
}
