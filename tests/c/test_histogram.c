/* test_histogram.c: the buckets are those of lumen_stats.h, without gaps, and narrow enough.
 */
#include "check.h"
#include "lumen_stats.h"
#include "parts/histogram.h"

static const uint32_t last = LM_HISTOGRAM_BUCKETS - 1;
static const uint64_t end = 1ull << (LM_HISTOGRAM_TOP_BIT + 1);

/* The formula of lumen_stats.h, written from its words. */
static uint64_t by_formula(uint64_t value, uint64_t sub_bits, uint64_t unit_bits,
                           uint64_t buckets) {
    uint64_t log2 = 0;
    if (value < (1ull << sub_bits) << unit_bits) return value >> unit_bits;
    while (value >> log2 > 1) log2++;
    uint64_t bucket = ((log2 - sub_bits - unit_bits) << sub_bits) + (value >> (log2 - sub_bits));
    return bucket < buckets ? bucket : buckets - 1;
}

static uint64_t documented_bucket(uint64_t value) {
    return by_formula(value, LM_HISTOGRAM_SUB_BITS, LM_HISTOGRAM_UNIT_BITS, LM_HISTOGRAM_BUCKETS);
}

static uint64_t documented_model_bucket(uint64_t value) {
    return by_formula(value, LM_MODEL_HISTOGRAM_SUB_BITS, LM_MODEL_HISTOGRAM_UNIT_BITS,
                      LM_MODEL_HISTOGRAM_BUCKETS);
}

/* Every bucket begins where the one before ends, and knows its own first and last value. */
static void every_bucket(void) {
    CHECK(lm_histogram_floor(0) == 0);
    CHECK(lm_histogram_floor(last + 1) == end);
    for (uint32_t b = 0; b <= last; b++) {
        uint64_t floor = lm_histogram_floor(b), next = lm_histogram_floor(b + 1);
        CHECK_AT("bucket %u", b);
        CHECK(next > floor);
        CHECK(lm_histogram_bucket(floor) == b && lm_histogram_bucket(next - 1) == b);
        CHECK(lm_histogram_bucket(floor + (next - floor) / 2) == b);
        if (floor >= 1024) {                     /* 2^10 ns is what the layout calls 1 µs */
            CHECK((next - floor) * 64 <= floor); /* at most 1/64 of its value wide */
        } else {
            CHECK(next - floor == 16);
        }
    }
}

static void octaves(void) {
    for (uint32_t bit = 0; bit < 64; bit++) {
        for (int64_t step = -2; step <= 2; step++) {
            uint64_t value = (1ull << bit) + (uint64_t)step;
            CHECK_AT("2^%u%+d", bit, (int)step);
            CHECK(lm_histogram_bucket(value) == documented_bucket(value));
            CHECK(lm_model_histogram_bucket(value) == documented_model_bucket(value));
        }
    }
    CHECK(lm_histogram_bucket(end - 1) == last);
    CHECK(lm_histogram_bucket(end) == last);
    CHECK(lm_histogram_bucket(UINT64_MAX) == last);
    CHECK(lm_histogram_bucket(60ull * 1000000000) < last); /* 60 s still has a bucket of its own */
}

static void random_values(uint64_t *random) {
    for (uint32_t i = 0; i < 100000; i++) {
        uint64_t a = check_random(random) >> check_below(random, 64),
                 b = check_random(random) >> check_below(random, 64);
        CHECK_AT("%llu and %llu", (unsigned long long)a, (unsigned long long)b);
        uint32_t bucket = lm_histogram_bucket(a);
        CHECK(bucket == documented_bucket(a));
        CHECK(lm_model_histogram_bucket(a) == documented_model_bucket(a));
        CHECK(lm_histogram_floor(bucket) <= a &&
              (bucket == last || a < lm_histogram_floor(bucket + 1)));
        CHECK(a <= b ? bucket <= lm_histogram_bucket(b) : bucket >= lm_histogram_bucket(b));
    }
}

static void recording(void) {
    static struct lm_histogram histogram;
    static const uint64_t values[] = {0, 15, 16, 1500, 1500, 1501, UINT64_MAX, end};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        lm_histogram_record(&histogram, values[i]);
    uint64_t sum = 0;
    /* relaxed: this thread wrote them */
    for (uint32_t b = 0; b <= last; b++) sum += lm_load_relaxed_u64(&histogram.buckets[b]);
    CHECK(sum == sizeof values / sizeof values[0]);
    CHECK(lm_load_relaxed_u64(&histogram.buckets[0]) == 2);
    CHECK(lm_load_relaxed_u64(&histogram.buckets[1]) == 1);
    CHECK(lm_load_relaxed_u64(&histogram.buckets[lm_histogram_bucket(1500)]) == 3);
    CHECK(lm_load_relaxed_u64(&histogram.buckets[last]) == 2);
}

/* A model's histogram: the sum is exact, and the ends are 2^12 ns, 2^14 ns and 2^35 ns. */
static void recording_of_a_model(void) {
    static struct lm_model_histogram histogram;
    static const struct {
        uint64_t value;
        uint32_t bucket;
    } values[] = {{0, 0},
                  {4095, 0},
                  {4096, 1},
                  {16383, 3},
                  {16384, 4},
                  {20480, 5},
                  {(1ull << 35) - 1, LM_MODEL_HISTOGRAM_BUCKETS - 1},
                  {1ull << 35, LM_MODEL_HISTOGRAM_BUCKETS - 1},
                  {1ull << 60, LM_MODEL_HISTOGRAM_BUCKETS - 1}};
    uint64_t sum_ns = 0;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        uint32_t bucket = values[i].bucket;
        CHECK_AT("%llu ns", (unsigned long long)values[i].value);
        /* relaxed: this thread wrote them */
        uint64_t before = lm_load_relaxed_u64(&histogram.buckets[bucket]);
        lm_model_histogram_record(&histogram, values[i].value);
        CHECK(lm_load_relaxed_u64(&histogram.buckets[bucket]) == before + 1);
        sum_ns += values[i].value;
        CHECK(lm_load_relaxed_u64(&histogram.sum_ns) == sum_ns);
    }
}

int main(void) {
    uint64_t random = check_seed();
    every_bucket();
    octaves();
    random_values(&random);
    recording();
    recording_of_a_model();
    return check_finish("test_histogram");
}
