/* test_load_meter.c: how loaded a server is: from sums to figures, and how they are said. Threads
 * that ask at the same time make figures one after the other, and none from half of a sum. */
#include <math.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>

#include "check.h"
#include "parts/load_meter.h"
#include "wire/protobuf.h"

enum { THREADS = 4, ROUNDS = CHECK_UNDER_TSAN ? 20000 : 200000 };

static const uint64_t ms = 1000000;

static struct lm_load_figures figures_after(struct lm_load_meter *meter,
                                            const struct lm_load_sums *sums, uint64_t now_ns) {
    struct lm_load_figures figures;
    CHECK(lm_load_meter_begin(meter, now_ns));
    CHECK(!lm_load_meter_begin(meter, now_ns)); /* another has it */
    lm_load_meter_make(meter, sums, now_ns);
    CHECK(!lm_load_meter_begin(meter, now_ns + 99 * ms)); /* not due */
    CHECK(lm_load_meter_read(meter, &figures) > 0);
    return figures;
}

static bool is_near(double found, double expected) {
    return fabs(found - expected) < 0.002;
}

static void by_hand(void) {
    struct lm_load_meter meter = {0};
    struct lm_load_sums sums = {.workers = 2, .ios = 1};
    struct lm_load_figures figures;
    CHECK(lm_load_meter_read(&meter, &figures) == 0 && figures.busy == 0);
    lm_load_meter_open(&meter, 1000 * ms);
    /* One of two workers was busy for a second; the I/O thread for a quarter of it. */
    sums.workers_busy_ns = 1000 * ms;
    sums.ios_busy_ns = 250 * ms;
    sums.answered = 50;
    sums.failed = 5;
    sums.running = 1;
    figures = figures_after(&meter, &sums, 2000 * ms);
    CHECK(is_near(figures.busy, 0.5) && figures.queued == 0 && is_near(figures.answered, 50));
    CHECK(is_near(figures.failed, 5) && figures.running == 1 && figures.waiting == 0);
    /* For a fifth of the mean's time the I/O thread alone was busy, and three requests wait. */
    sums.ios_busy_ns += 125 * ms;
    sums.waiting = 3;
    figures = figures_after(&meter, &sums, 2125 * ms);
    CHECK(is_near(figures.busy, 0.75) && is_near(figures.queued, 0.75) &&
          is_near(figures.answered, 25));
    CHECK(figures.waiting == 3);
    /* Long after, nothing of that is left; a sum that seems to go back is none. */
    sums.waiting = sums.running = 0;
    sums.answered--;
    figures = figures_after(&meter, &sums, 9000 * ms);
    CHECK(figures.busy == 0 && figures.queued == 0 && figures.answered == 0 && figures.failed == 0);
    /* Nobody is busier than all the time. */
    sums.workers_busy_ns += 5000 * ms;
    CHECK(is_near(figures_after(&meter, &sums, 10000 * ms).busy, 1));
}

static void lines(void) {
    char line[LM_LOAD_LINE_BYTES];
    const struct lm_load_figures figures = {1.25, 7, 800.5, 2, 3, 4};
    const struct lm_load_figures most = {1e300, 1e300, 1e300, 1e300, UINT32_MAX, UINT32_MAX};
    CHECK(lm_load_write_line(&figures, LM_LOAD_TEXT, line) == strlen(line));
    CHECK(strcmp(line, "endpoint-load-metrics: TEXT application_utilization=1.2500,"
                       "rps_fractional=800.500,eps=2.000,named_metrics.waiting=3,"
                       "named_metrics.running=4\r\n") == 0);
    CHECK(lm_load_write_line(&figures, LM_LOAD_JSON, line) == strlen(line));
    CHECK(strstr(line, "JSON {\"application_utilization\":1.2500,\"rps_fractional\":800.500,"));
    CHECK(strstr(line, "\"named_metrics\":{\"waiting\":3,\"running\":4}}\r\n"));
    CHECK(lm_load_write_line(&most, LM_LOAD_JSON, line) < LM_LOAD_LINE_BYTES);
    CHECK(lm_load_form_find((struct lm_slice){"JSON", 4}) == LM_LOAD_JSON);
    CHECK(lm_load_form_find((struct lm_slice){"text", 4}) == LM_LOAD_TEXT);
    CHECK(lm_load_form_find((struct lm_slice){"texts", 5}) == LM_LOAD_UNASKED);
    CHECK(lm_load_form_find((struct lm_slice){NULL, 0}) == LM_LOAD_UNASKED);
}

/* The same as a message (ORCA's), in base64. */
static void field(void) {
    static const char name[] = "endpoint-load-metrics-bin";
    const struct lm_load_figures figures = {.busy = 1.25, .answered = 800.5, .failed = 2};
    uint8_t bytes[LM_LOAD_FIELD_BYTES], message[64];
    double found[10] = {0};
    size_t count = 0;
    const size_t used = lm_load_write_field(&figures, bytes);
    const size_t begin = 2 + sizeof name; /* behind the lengths of both */
    CHECK(bytes[1] == sizeof name - 1 && memcmp(bytes + 2, name, sizeof name - 1) == 0);
    CHECK(bytes[begin - 1] == used - begin);
    CHECK(sodium_base642bin(message, sizeof message, (char *)bytes + begin, used - begin, NULL,
                            &count, NULL, sodium_base64_VARIANT_ORIGINAL) == 0);
    struct lm_pb_reader reader = lm_pb_reader(message, count);
    for (struct lm_pb_field one; lm_pb_next(&reader, &one);) {
        CHECK(one.number < 10 && one.type == LM_PB_FIXED64);
        memcpy(&found[one.number], &one.value, sizeof *found);
    }
    CHECK(!reader.is_bad && found[6] == 800.5 && found[7] == 2 && found[9] == 1.25);
}

/* ---- threads ---- */

static struct lm_load_meter shared;
static lm_atomic_u64 clock_ns, made;

static void *ask(void *unused) {
    (void)unused;
    for (uint32_t r = 0; r < ROUNDS; r++) {
        const uint64_t now_ns = lm_count_relaxed_u64(&clock_ns, ms);
        /* All sums are one number, so that a mix of two would show. */
        const struct lm_load_sums sums = {.workers = 1,
                                          .workers_busy_ns = now_ns,
                                          .answered = now_ns / ms,
                                          .failed = now_ns / ms};
        if (!lm_load_meter_begin(&shared, now_ns)) continue;
        CHECK(shared.last.workers_busy_ns / ms == shared.last.answered);
        lm_load_meter_make(&shared, &sums, now_ns);
        (void)lm_count_relaxed_u64(&made, 1);
    }
    return NULL;
}

static void by_threads(void) {
    pthread_t threads[THREADS];
    lm_load_meter_open(&shared, 0);
    for (int t = 0; t < THREADS; t++) CHECK(pthread_create(&threads[t], NULL, ask, NULL) == 0);
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    const uint64_t most = THREADS * ROUNDS / 100 + THREADS;
    const uint64_t count = lm_load_relaxed_u64(&made);
    CHECK(count > 0 && count <= most);
    CHECK(lm_load_relaxed_u32(&shared.number) == count);
}

int main(void) {
    by_hand();
    lines();
    field();
    by_threads();
    return check_finish("test_load_meter");
}
