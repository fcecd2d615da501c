/* test_trace.c: the ring of telemetry rows: order, a full ring drops and counts, one writer beside
 * one reader. */
#include <pthread.h>

#include "check.h"
#include "parts/trace.h"

static void fills_and_drops(void) {
    struct lm_trace trace;
    static struct lm_trace_record rows[LM_TRACE_RECORDS];
    CHECK_AT("fills and drops");
    memset(&trace, 0xee, sizeof trace); /* what was there before does not count */
    CHECK(lm_trace_open(&trace) == 0);
    for (uint64_t i = 0; i < LM_TRACE_RECORDS + 10; i++) {
        lm_trace_push(&trace, &(struct lm_trace_record){.id = i});
    }
    CHECK(lm_load_relaxed_u64(&trace.dropped) == 10);
    CHECK(lm_trace_pop(&trace, rows, 100) == 100);
    for (uint64_t i = 0; i < 100; i++) CHECK(rows[i].id == i);
    lm_trace_push(&trace, &(struct lm_trace_record){.id = 77});
    CHECK(lm_trace_pop(&trace, rows, LM_TRACE_RECORDS) == LM_TRACE_RECORDS - 99);
    CHECK(rows[LM_TRACE_RECORDS - 100].id == 77);
    CHECK(lm_trace_pop(&trace, rows, 1) == 0);
    lm_trace_close(&trace);
}

enum { ROWS = 200000 };

static void *write_rows(void *trace) {
    for (uint64_t i = 0; i < ROWS; i++) {
        lm_trace_push(trace, &(struct lm_trace_record){.id = i, .total_ns = ~i, .rows = 3});
    }
    return NULL;
}

static void beside_a_reader(void) {
    struct lm_trace trace;
    pthread_t writer;
    struct lm_trace_record rows[64];
    uint64_t read = 0, next = 0;
    CHECK_AT("beside a reader");
    CHECK(lm_trace_open(&trace) == 0);
    CHECK(!pthread_create(&writer, NULL, write_rows, &trace));
    for (bool ended = false;;) {
        uint32_t count = lm_trace_pop(&trace, rows, 64);
        for (uint32_t r = 0; r < count; r++) {
            CHECK(rows[r].id >= next && rows[r].total_ns == ~rows[r].id && rows[r].rows == 3);
            next = rows[r].id + 1;
        }
        read += count;
        if (count == 0 && ended) break;
        if (count == 0 && !ended) ended = pthread_tryjoin_np(writer, NULL) == 0;
    }
    CHECK(read + lm_load_relaxed_u64(&trace.dropped) == ROWS);
    lm_trace_close(&trace);
}

int main(void) {
    fills_and_drops();
    beside_a_reader();
    return check_finish("test_trace");
}
