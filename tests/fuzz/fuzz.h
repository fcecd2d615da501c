/* fuzz.h: what the fuzz targets share. A property that does not hold ends the process, which
 * libFuzzer and the replay report with the input. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                  \
        }                                                                             \
    } while (0)

#ifdef __cplusplus
extern "C"
#endif
    int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count);

/* A copy of exactly this size, so that AddressSanitizer sees a read past the end. */
static inline void *fuzz_copy(const void *bytes, size_t count) {
    void *copy = calloc(1, count ? count : 1);
    HOLDS(copy);
    if (count) memcpy(copy, bytes, count);
    return copy;
}

/* Where to split an input: numbers that depend on its bytes alone. */
static inline uint64_t fuzz_seed(const uint8_t *input, size_t count) {
    uint64_t seed = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++) seed = (seed ^ input[i]) * 0x100000001b3u;
    return seed | 1;
}

static inline size_t fuzz_below(uint64_t *state, size_t bound) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (size_t)((*state * 0x2545f4914f6cdd1du >> 32) % bound);
}

#endif
