/* preprocess.c: see preprocess.h. Runs on workers.
 *
 * The vector kernels take 16 pixels (48 bytes) at a time: shuffles bring the bytes of one vector of
 * the tensor together, then widen, subtract, multiply. Two roundings everywhere, so that every
 * kernel gives the same bits.
 */
#include "models/preprocess.h"

#include <string.h>

#include "base/error.h"
#include "base/processor.h"
#include "lumen.h"
#include "onnx/ort_api.h"

/* Converts whole sixteens of `count` pixels; returns how many pixels that were. Vector v of the
 * first sixteen goes to out[v], the next one `step` bytes behind it. */
typedef size_t (*run_kernel)(const struct lm_rgb8_plan *plan, const uint8_t *pixels,
                             uint8_t *const out[3], size_t step, size_t count);

static size_t run_scalar(const struct lm_rgb8_plan *plan, const uint8_t *pixels,
                         uint8_t *const out[3], size_t step, size_t count) {
    (void)plan, (void)pixels, (void)out, (void)step, (void)count;
    return 0;
}

/* Rounds to nearest even, as processors and numpy do. */
static uint16_t half_of(float value) {
    uint32_t bits, half;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) {
        half = 0x7e00; /* not a number */
    } else if (bits >= 0x477ff000) {
        half = 0x7c00; /* from 65520 on: infinite */
    } else if (bits < 0x38800000) {
        /* Below 2^-14 a half has the steps of a float beside 0.5, 2^-24: adding rounds. */
        float magnitude;
        memcpy(&magnitude, &bits, sizeof bits);
        magnitude += 0.5f;
        memcpy(&half, &magnitude, sizeof half);
        half -= 0x3f000000;
    } else {
        half = (bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13;
    }
    return (uint16_t)(sign | half);
}

static void convert_pixel(const struct lm_rgb8_plan *plan, const uint8_t *pixel, void *tensor,
                          size_t at, size_t step) {
    for (uint32_t c = 0; c < 3; c++, at += step) {
        uint8_t byte = pixel[plan->source[c]];
        float value = ((float)byte - plan->mean[c]) * plan->scale[c];
        if (plan->dtype == ORT_FLOAT) {
            ((float *)tensor)[at] = value;
        } else if (plan->dtype == ORT_FLOAT16) {
            ((uint16_t *)tensor)[at] = half_of(value);
        } else {
            ((uint8_t *)tensor)[at] = plan->dtype == ORT_INT8 ? byte ^ 0x80 : byte;
        }
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,f16c")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

/* pshufb's masks for the bytes of vector v in block b of 16: a byte outside of the block gets its
 * top bit set, and so 0. */
AVX2 static inline void load_masks(const struct lm_rgb8_plan *plan, __m128i masks[3][3]) {
    for (uint32_t v = 0; v < 3; v++) {
        __m128i pick = _mm_loadu_si128((const __m128i *)plan->lanes.pick[v]);
        for (uint32_t b = 0; b < 3; b++) {
            __m128i inside = _mm_sub_epi8(pick, _mm_set1_epi8((char)(16 * b)));
            masks[v][b] = _mm_adds_epu8(inside, _mm_set1_epi8(0x70));
        }
    }
}

AVX2 static inline __m128i gather(const __m128i *blocks, const __m128i masks[3]) {
    return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(_mm_loadu_si128(blocks), masks[0]),
                                     _mm_shuffle_epi8(_mm_loadu_si128(blocks + 1), masks[1])),
                        _mm_shuffle_epi8(_mm_loadu_si128(blocks + 2), masks[2]));
}

AVX2 static size_t run_avx2(const struct lm_rgb8_plan *plan, const uint8_t *pixels,
                            uint8_t *const out[3], size_t step, size_t count) {
    __m128i masks[3][3], flip = _mm_set1_epi8(plan->dtype == ORT_INT8 ? (char)0x80 : 0);
    load_masks(plan, masks);
    size_t i = 0, at = 0;
    for (; i + 16 <= count; i += 16, at += step) {
        for (uint32_t v = 0; v < 3; v++) {
            __m128i bytes = gather((const __m128i *)(pixels + 3 * i), masks[v]);
            if (plan->dtype != ORT_FLOAT && plan->dtype != ORT_FLOAT16) {
                _mm_storeu_si128((__m128i *)(out[v] + at), _mm_xor_si128(bytes, flip));
                continue;
            }
            const float *mean = plan->lanes.mean[v], *scale = plan->lanes.scale[v];
            __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
            __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)));
            low = _mm256_mul_ps(_mm256_sub_ps(low, _mm256_loadu_ps(mean)), _mm256_loadu_ps(scale));
            high = _mm256_mul_ps(_mm256_sub_ps(high, _mm256_loadu_ps(mean + 8)),
                                 _mm256_loadu_ps(scale + 8));
            if (plan->dtype == ORT_FLOAT) {
                _mm256_storeu_ps((float *)(void *)(out[v] + at), low);
                _mm256_storeu_ps((float *)(void *)(out[v] + at + 32), high);
            } else {
                __m128i *halves = (__m128i *)(out[v] + at);
                _mm_storeu_si128(halves, _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
                _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT));
            }
        }
    }
    return i;
}

AVX512 static size_t run_avx512(const struct lm_rgb8_plan *plan, const uint8_t *pixels,
                                uint8_t *const out[3], size_t step, size_t count) {
    if (plan->dtype != ORT_FLOAT && plan->dtype != ORT_FLOAT16)
        return run_avx2(plan, pixels, out, step, count);
    __m128i masks[3][3];
    __m512 mean[3], scale[3];
    load_masks(plan, masks);
    for (uint32_t v = 0; v < 3; v++) {
        mean[v] = _mm512_loadu_ps(plan->lanes.mean[v]);
        scale[v] = _mm512_loadu_ps(plan->lanes.scale[v]);
    }
    size_t i = 0, at = 0;
    for (; i + 16 <= count; i += 16, at += step) {
        for (uint32_t v = 0; v < 3; v++) {
            __m128i bytes = gather((const __m128i *)(pixels + 3 * i), masks[v]);
            __m512 value = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
            value = _mm512_mul_ps(_mm512_sub_ps(value, mean[v]), scale[v]);
            if (plan->dtype == ORT_FLOAT) {
                _mm512_storeu_ps(out[v] + at, value);
            } else {
                _mm256_storeu_si256((__m256i *)(out[v] + at),
                                    _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
            }
        }
    }
    return i;
}
#elif defined(__aarch64__)
#include <arm_neon.h>

static float32x4_t scaled(uint16x4_t values, const float *mean, const float *scale) {
    float32x4_t value = vcvtq_f32_u32(vmovl_u16(values));
    return vmulq_f32(vsubq_f32(value, vld1q_f32(mean)), vld1q_f32(scale));
}

static size_t run_neon(const struct lm_rgb8_plan *plan, const uint8_t *pixels,
                       uint8_t *const out[3], size_t step, size_t count) {
    uint8x16_t flip = vdupq_n_u8(plan->dtype == ORT_INT8 ? 0x80 : 0);
    size_t i = 0, at = 0;
    for (; i + 16 <= count; i += 16, at += step) {
        uint8x16x3_t blocks = vld1q_u8_x3(pixels + 3 * i);
        for (uint32_t v = 0; v < 3; v++) {
            uint8x16_t bytes = vqtbl3q_u8(blocks, vld1q_u8(plan->lanes.pick[v]));
            if (plan->dtype != ORT_FLOAT && plan->dtype != ORT_FLOAT16) {
                vst1q_u8(out[v] + at, veorq_u8(bytes, flip));
                continue;
            }
            uint16x8_t half[2] = {vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes))};
            const float *mean = plan->lanes.mean[v], *scale = plan->lanes.scale[v];
            for (uint32_t q = 0; q < 4; q++) {
                uint16x4_t four = q % 2 ? vget_high_u16(half[q / 2]) : vget_low_u16(half[q / 2]);
                float32x4_t value = scaled(four, mean + 4 * q, scale + 4 * q);
                if (plan->dtype == ORT_FLOAT) {
                    vst1q_f32((float *)(void *)(out[v] + at) + 4 * q, value);
                } else {
                    vst1_u16((uint16_t *)(void *)(out[v] + at) + 4 * q,
                             vreinterpret_u16_f16(vcvt_f16_f32(value)));
                }
            }
        }
    }
    return i;
}
#endif

static const struct {
    const char *name;
    run_kernel run;
} kernels[] = {
#if defined(__x86_64__)
    {"avx512", run_avx512},
    {"avx2", run_avx2},
#elif defined(__aarch64__)
    {"neon", run_neon},
#endif
    {"scalar", run_scalar},
};
enum { KERNEL_COUNT = sizeof kernels / sizeof kernels[0] };

static uint32_t first_kernel(void) {
#if defined(__x86_64__)
    uint32_t processor = lm_processor();
    return processor & LM_PROCESSOR_AVX512 ? 0 : processor & LM_PROCESSOR_AVX2 ? 1 : 2;
#else
    return 0;
#endif
}

const char *lm_rgb8_kernel_name(uint32_t index) {
    uint32_t at = first_kernel() + index;
    return at < KERNEL_COUNT ? kernels[at].name : NULL;
}

size_t lm_rgb8_value_bytes(const struct lm_rgb8_plan *plan) {
    return plan->dtype == ORT_FLOAT ? 4 : plan->dtype == ORT_FLOAT16 ? 2 : 1;
}

/* One channel is a plane, which is written three times. */
static bool is_planar(const struct lm_rgb8_plan *plan) {
    return plan->is_grey || plan->layout == LM_LAYOUT_NCHW;
}

void lm_rgb8_plan_init(struct lm_rgb8_plan *plan, uint32_t channel_order, const float mean[3],
                       const float scale[3]) {
    for (uint32_t c = 0; c < 3; c++) {
        uint32_t channel = plan->is_grey ? 0 : c;
        plan->source[c] = (uint8_t)(channel_order == LUMEN_CHANNELS_BGR ? 2 - channel : channel);
        plan->mean[c] = mean[channel];
        plan->scale[c] = scale[channel];
    }
    bool planar = is_planar(plan);
    for (uint32_t v = 0; v < 3; v++) {
        for (uint32_t lane = 0; lane < 16; lane++) {
            uint32_t at = 16 * v + lane; /* in a run of NHWC */
            uint32_t c = planar ? v : at % 3;
            uint32_t pixel = planar ? lane : at / 3;
            plan->lanes.pick[v][lane] = (uint8_t)(3 * pixel + plan->source[c]);
            plan->lanes.mean[v][lane] = plan->mean[c];
            plan->lanes.scale[v][lane] = plan->scale[c];
        }
    }
}

void lm_rgb8_run_with(uint32_t kernel, const struct lm_rgb8_plan *plan, const uint8_t *pixels,
                      void *tensor, size_t first, size_t count) {
    size_t bytes = lm_rgb8_value_bytes(plan);
    bool planar = is_planar(plan);
    size_t plane = plan->is_grey ? 0 : (size_t)plan->height * plan->width;
    size_t start = (planar ? first : 3 * first) * bytes;
    size_t between = (planar ? plane : 16) * bytes; /* vectors of a sixteen */
    uint8_t *at = (uint8_t *)tensor + start;
    uint8_t *const out[3] = {at, at + between, at + 2 * between};
    size_t i =
        kernels[first_kernel() + kernel].run(plan, pixels, out, (planar ? 16 : 48) * bytes, count);
    for (; i < count; i++) {
        convert_pixel(plan, pixels + 3 * i, tensor, planar ? first + i : 3 * (first + i),
                      planar ? plane : 1);
    }
}

void lm_rgb8_run(const struct lm_rgb8_plan *plan, const uint8_t *pixels, void *tensor, size_t first,
                 size_t count) {
    lm_rgb8_run_with(0, plan, pixels, tensor, first, count);
}

void lm_rgb8_convert(const struct lm_rgb8_plan *plan, const uint8_t *pixels, void *tensor,
                     uint32_t rows) {
    size_t pixel_count = (size_t)plan->height * plan->width;
    LM_DEBUG_ASSERT(!plan->is_grey); /* the pixels would have to be made grey first */
    size_t tensor_bytes = 3 * pixel_count * lm_rgb8_value_bytes(plan);
    for (uint32_t row = 0; row < rows; row++) {
        lm_rgb8_run(plan, pixels + row * 3 * pixel_count, (uint8_t *)tensor + row * tensor_bytes, 0,
                    pixel_count);
    }
}
