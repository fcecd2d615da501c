/* test_difference.c: how far the outputs of two models are from each other: classes, labels and
 * strings row by row, the largest difference of two numbers of each floating-point type, and
 * numbers that are none. */
#include "onnx/difference.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "onnx/tensor.h"

enum { ROWS = 3 };

static struct lm_difference difference;

static void begin(void) {
    CHECK(lm_difference_open(&difference, ROWS) == 0);
}

static void add(int dtype, const void *one, size_t one_bytes, const void *other,
                size_t other_bytes) {
    const struct iovec a = {(void *)(uintptr_t)one, one_bytes},
                       b = {(void *)(uintptr_t)other, other_bytes};
    lm_difference_add(&difference, dtype, &a, &b);
}

static void end(uint32_t apart, double largest) {
    CHECK(lm_difference_rows(&difference) == apart);
    CHECK(difference.largest == largest);
    lm_difference_close(&difference);
}

static void classes(void) {
    const float one[ROWS * 2] = {1, 2, 4, 3, 5, 5}, other[ROWS * 2] = {1.5f, 2, 3, 3.25f, 5, 5};
    begin();
    add(ORT_FLOAT, one, sizeof one, other, sizeof other);
    end(1, 1);
    const double few[ROWS] = {1, 2, 3}, others[ROWS] = {1, 2, -3};
    begin(); /* one number a row has no class */
    add(ORT_DOUBLE, few, sizeof few, others, sizeof others);
    end(0, 6);
    const float all[4] = {1, 2, 3, 4}, all_others[4] = {5, 2, 3, 4};
    begin(); /* not by rows */
    add(ORT_FLOAT, all, sizeof all, all, sizeof all);
    CHECK(lm_difference_rows(&difference) == 0);
    add(ORT_FLOAT, all, sizeof all, all_others, sizeof all_others);
    end(ROWS, 4);
}

static void halves(void) {
    /* 1, the least that is not 0, and -2 beside 1.5, 0 and 65504. */
    const uint16_t one[ROWS] = {0x3c00, 0x0001, 0xc000}, other[ROWS] = {0x3e00, 0x0000, 0x7bff};
    begin();
    add(ORT_FLOAT16, one, sizeof one, other, sizeof other);
    end(0, 65506);
    begin();
    add(ORT_FLOAT16, one + 1, 2, other + 1, 2);
    end(0, ldexp(1, -24));
    const uint16_t brain[ROWS] = {0x3f80, 0x4000, 0xc000}, brains[ROWS] = {0x3f80, 0x4040, 0xc000};
    begin();
    add(ORT_BFLOAT16, brain, sizeof brain, brains, sizeof brains);
    end(0, 1);
}

static void no_numbers(void) {
    const float nan = NAN, more = INFINITY;
    const float one[ROWS] = {nan, more, 1}, other[ROWS] = {1, more, 1};
    begin();
    add(ORT_FLOAT, one, sizeof one, one, sizeof one);
    CHECK(difference.largest == 0);
    add(ORT_FLOAT, one, sizeof one, other, sizeof other);
    end(0, (double)INFINITY);
    const uint16_t halves_of[2] = {0x7e00, 0xfc00}, others[2] = {0x7e00, 0x7c00};
    begin();
    add(ORT_FLOAT16, halves_of, sizeof halves_of, halves_of, sizeof halves_of);
    CHECK(difference.largest == 0);
    add(ORT_FLOAT16, halves_of, sizeof halves_of, others, sizeof others);
    end(ROWS, (double)INFINITY); /* of two numbers beside three rows the class is another */
}

static void labels(void) {
    const int64_t one[ROWS] = {1, 2, 3}, other[ROWS] = {1, 7, 9};
    const uint8_t flags[ROWS * 2] = {0, 1, 0, 1, 0, 1}, others[ROWS * 2] = {0, 1, 1, 1, 0, 1};
    begin();
    add(ORT_INT64, one, sizeof one, other, sizeof other);
    CHECK(lm_difference_rows(&difference) == 2);
    add(ORT_BOOL, flags, sizeof flags, others, sizeof others); /* a row that is apart already */
    end(2, 0);
    begin();
    add(ORT_INT64, one, sizeof one, other, sizeof other - 8);
    end(ROWS, 0);
    begin();
    add(ORT_INT64, one, 0, other, 0);
    end(0, 0);
}

static size_t put(uint8_t *wire, const char *const *texts, uint32_t count) {
    uint8_t *at = wire;
    for (uint32_t t = 0; t < count; t++) {
        const uint32_t bytes = (uint32_t)strlen(texts[t]);
        memcpy(at, &bytes, sizeof bytes);
        memcpy(at + sizeof bytes, texts[t], bytes);
        at += sizeof bytes + bytes;
    }
    return (size_t)(at - wire);
}

static void strings(void) {
    const char *const one[] = {"a", "", "long one", "b"}, *const other[] = {"a", "x", "long one"};
    uint8_t wire[64], others[64];
    begin();
    add(ORT_STRING, wire, put(wire, one, ROWS), others, put(others, other, ROWS));
    end(1, 0);
    begin(); /* more strings than the other has, and not by rows */
    add(ORT_STRING, wire, put(wire, one, ROWS + 1), others, put(others, other, ROWS));
    end(ROWS, 0);
    begin();
    add(ORT_STRING, wire, put(wire, one, ROWS + 1), wire, put(wire, one, ROWS + 1));
    end(0, 0);
}

int main(void) {
    classes();
    halves();
    no_numbers();
    labels();
    strings();
    return check_finish("test_difference");
}
