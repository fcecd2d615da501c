/* dense_avx512.c: the kernels of dense.h with AVX-512. See dense_lanes.h. */
#include "engine/dense_x86.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LANES 16
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,fma")))
#define ROWS 6 /* of 4 sums each, beside 4 weights and an input: 29 of 32 registers */
#define ROW_VECTORS 4

typedef __m512 vec;

TARGET static inline vec load(const float *at) {
    return _mm512_loadu_ps(at);
}
TARGET static inline void store(float *at, vec value) {
    _mm512_storeu_ps(at, value);
}
TARGET static inline vec all(float value) {
    return _mm512_set1_ps(value);
}
TARGET static inline vec fused(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}
TARGET static inline vec most(vec a, vec b) {
    return _mm512_max_ps(a, b);
}
TARGET static inline vec least(vec a, vec b) {
    return _mm512_min_ps(a, b);
}
TARGET static inline vec nearest(vec a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* 2 to the power of a whole number. */
TARGET static inline vec power_of_two(vec whole) {
    __m512i bits = _mm512_add_epi32(_mm512_cvtps_epi32(whole), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 23));
}
TARGET static inline vec first_lanes(vec value, size_t count, vec other) {
    return _mm512_mask_blend_ps((__mmask16)((1u << count) - 1), other, value);
}

#define NAME "avx512"
#define KERNEL lm_dense_avx512
#include "engine/dense_lanes.h"
#endif
