/* dense_avx2.c: the kernels of dense.h with AVX2 and FMA. See dense_lanes.h. */
#include "engine/dense_x86.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LANES 8
#define TARGET __attribute__((target("avx2,fma")))
#define ROWS 6 /* of 2 sums each, beside 2 weights and an input: 15 of 16 registers */
#define ROW_VECTORS 2

typedef __m256 vec;

TARGET static inline vec load(const float *at) {
    return _mm256_loadu_ps(at);
}
TARGET static inline void store(float *at, vec value) {
    _mm256_storeu_ps(at, value);
}
TARGET static inline vec all(float value) {
    return _mm256_set1_ps(value);
}
TARGET static inline vec fused(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
TARGET static inline vec most(vec a, vec b) {
    return _mm256_max_ps(a, b);
}
TARGET static inline vec least(vec a, vec b) {
    return _mm256_min_ps(a, b);
}
TARGET static inline vec nearest(vec a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* 2 to the power of a whole number. */
TARGET static inline vec power_of_two(vec whole) {
    __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}
TARGET static inline vec first_lanes(vec value, size_t count, vec other) {
    static const int32_t marks[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    __m256i mask = _mm256_loadu_si256((const __m256i *)(marks + LANES - count));
    return _mm256_blendv_ps(other, value, _mm256_castsi256_ps(mask));
}

#define NAME "avx2"
#define KERNEL lm_dense_avx2
#include "engine/dense_lanes.h"
#endif
