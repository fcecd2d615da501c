/* test_tracing.c: W3C's traceparent, read and written, the store of what was recorded, and how much
 * is. */
#include "check.h"
#include "flow/tracing.h"
#include "wire/traceparent.h"
#include "work/span_store.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define GOOD "00-" TRACE "-00f067aa0ba902b7-01"

static bool reads(const char *text, struct lm_traceparent *found) {
    return lm_traceparent_read((struct lm_slice){text, strlen(text)}, found);
}

static void test_good(void) {
    struct lm_traceparent found;
    char text[LM_TRACEPARENT_BYTES + 1];
    CHECK(reads(GOOD, &found));
    CHECK(found.is_sampled && found.span == 0x00f067aa0ba902b7 && found.trace[0] == 0x4b &&
          found.trace[15] == 0x36);
    lm_traceparent_write(&found, text);
    CHECK(strcmp(text, GOOD) == 0);
    CHECK(reads("00-" TRACE "-00f067aa0ba902b7-00", &found) && !found.is_sampled);
    CHECK(reads("00-" TRACE "-00f067aa0ba902b7-03", &found) && found.is_sampled);
    CHECK(reads("01-" TRACE "-00f067aa0ba902b7-01-more", &found)); /* of a later version */
}

static void test_malformed(void) {
    static const char *const wrong[] = {
        "",
        "00",
        "ff-" TRACE "-00f067aa0ba902b7-01",
        "0x-" TRACE "-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "-00f067aa0ba902b7-0g",
        "00-" TRACE "_00f067aa0ba902b7-01",
        "00-" TRACE "-00f067aa0ba902b7-01-more",
        "01-" TRACE "-00f067aa0ba902b7-01more",
    };
    struct lm_traceparent found;
    for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) CHECK(!reads(wrong[w], &found));
    for (size_t bytes = 0; bytes < sizeof GOOD - 1; bytes++)
        CHECK(!lm_traceparent_read((struct lm_slice){GOOD, bytes}, &found));
}

static void test_store(void) {
    struct lm_span_store store = {0};
    lumen_span taken[100];
    uint64_t lost;
    CHECK(lm_span_store_open(&store) == 0);
    for (uint64_t s = 1; s <= LUMEN_SPANS_KEPT + 7; s++)
        lm_span_store_add(&store, &(lumen_span){.span = s});
    uint64_t next = 1;
    for (uint32_t count; (count = lm_span_store_take(&store, taken, 100, &lost)) > 0;)
        for (uint32_t t = 0; t < count; t++) CHECK(taken[t].span == next++);
    CHECK(next == LUMEN_SPANS_KEPT + 1 && lost == 7);
    lm_span_store_add(&store, &(lumen_span){.span = next}); /* there is room again */
    CHECK(lm_span_store_take(&store, taken, 100, &lost) == 1 && taken[0].span == next);
    lm_span_store_close(&store);
}

/* So many requests are recorded in a second, and as many in the next one. */
static void test_recorded_in_a_second(void) {
    enum { PER_SECOND = 3, SECOND_NS = 1000000000 };
    static struct lm_shared shared = {.io_count = 1};
    static struct lm_connection connection;
    struct lm_io io = {.shared = &shared, .connection_capacity = 1};
    struct lm_request request;
    shared.sampling = (struct lm_sampling){.per_second = PER_SECOND, .share = 1};
    CHECK(lm_tracing_open(&io) == 0);
    for (uint64_t second = 5; second < 9; second++) {
        CHECK_AT("second %llu", (unsigned long long)second);
        for (uint32_t r = 0; r < 2 * PER_SECOND; r++) {
            io.now_ns = second * SECOND_NS + r;
            lm_tracing_begin(&io, &connection, &request);
            CHECK((request.context.span != 0) == (r < PER_SECOND));
        }
    }
    lm_tracing_close(&io);
}

int main(void) {
    test_good();
    test_malformed();
    test_store();
    test_recorded_in_a_second();
    return check_finish("test_tracing");
}
