/* test_record.c: how a request ended is counted under one word of the worker's and one of its
 * model's, whoever answered it.
 */
#include "check.h"
#include "work/record.h"

static struct lm_stats_block stats;

/* relaxed: one thread */
#define WORKER(name) lm_load_relaxed_u64(&stats.worker.name)
#define MODEL(name) lm_load_relaxed_u64(&stats.models[0].worker.name)

static uint64_t sum_of_worker(void) {
    return WORKER(requests_ok) + WORKER(requests_error) + WORKER(requests_overloaded) +
           WORKER(requests_expired);
}

static uint64_t sum_of_model(void) {
    return MODEL(model_ok) + MODEL(model_failed) + MODEL(model_expired) + MODEL(model_unfit);
}

int main(void) {
    static struct lm_worker worker;
    static struct lm_model model;
    struct lm_request *request = calloc(1, sizeof *request);
    CHECK(request);
    worker.stats = &stats;
    request->model = &model;
    request->sizes.rows = 2;
    const enum lm_status statuses[] = {LM_STATUS_OK,        LM_STATUS_BAD_REQUEST,
                                       LM_STATUS_TOO_LARGE, LM_STATUS_OVERLOADED,
                                       LM_STATUS_DEADLINE,  LM_STATUS_INFERENCE_FAILED};
    for (uint32_t s = 0; s < sizeof statuses / sizeof statuses[0]; s++) {
        CHECK_AT("status %d", statuses[s]);
        request->status = (uint16_t)statuses[s];
        lm_record_status(&worker, request);
        CHECK(sum_of_worker() == s + 1 && sum_of_model() == s + 1);
    }
    CHECK(WORKER(requests_ok) == 1 && WORKER(rows) == 2 && MODEL(model_ok) == 1);
    CHECK(WORKER(requests_error) == 3 && WORKER(requests_bad) == 1);
    CHECK(WORKER(requests_too_large) == 1 && MODEL(model_failed) == 1);
    CHECK(WORKER(requests_overloaded) == 1 && MODEL(model_unfit) == 3);
    CHECK(WORKER(requests_expired) == 1 && MODEL(model_expired) == 1); /* not the client's fault */
    free(request);
    return check_finish("test_record");
}
