/* preprocess.c: see preprocess.h. Runs on workers.
 *
 * Planar float is the case that matters (NCHW models). The vector kernels take 16 pixels (48 bytes)
 * at a time: three shuffles bring the bytes of one channel together, then widen, multiply, add.
 * Subtract then multiply, two roundings everywhere, so that every kernel gives the same bits.
 */
#include "parts/preprocess.h"

#include <string.h>

#include "lumen.h"
#include "parts/ort_api.h"

typedef void (*planes_kernel)(const struct lm_rgb8_plan *plan, const uint8_t *pixels, float *planes,
                              size_t pixel_count);

/* Pixels [first, pixel_count) of an image whose planes are pixel_count long. */
static void planes_tail(const struct lm_rgb8_plan *plan, const uint8_t *pixels, float *planes,
                        size_t first, size_t pixel_count) {
    for (uint32_t c = 0; c < 3; c++) {
        const uint8_t *source = pixels + plan->source[c];
        float mean = plan->mean[c], scale = plan->scale[c];
        float *plane = planes + c * pixel_count;
        for (size_t i = first; i < pixel_count; i++)
            plane[i] = ((float)source[3 * i] - mean) * scale;
    }
}

static void planes_scalar(const struct lm_rgb8_plan *plan, const uint8_t *pixels, float *planes,
                          size_t pixel_count) {
    planes_tail(plan, pixels, planes, 0, pixel_count);
}

#if defined(__x86_64__)
#include <immintrin.h>

/* For image channel c: where its 16 bytes lie in the three 16-byte blocks of 16 pixels. 0x80 gives
 * 0. */
static void channel_masks(uint32_t c, uint8_t masks[3][16]) {
    memset(masks, 0x80, 48);
    for (uint32_t pixel = 0; pixel < 16; pixel++) {
        uint32_t at = 3 * pixel + c;
        masks[at / 16][pixel] = (uint8_t)(at % 16);
    }
}

__attribute__((target("avx2"))) static void planes_avx2(const struct lm_rgb8_plan *plan,
                                                        const uint8_t *pixels, float *planes,
                                                        size_t pixel_count) {
    __m128i masks[3][3];
    __m256 mean[3], scale[3];
    for (uint32_t c = 0; c < 3; c++) {
        uint8_t bytes[3][16];
        channel_masks(plan->source[c], bytes);
        for (uint32_t block = 0; block < 3; block++)
            masks[c][block] = _mm_loadu_si128((const __m128i *)bytes[block]);
        scale[c] = _mm256_set1_ps(plan->scale[c]);
        mean[c] = _mm256_set1_ps(plan->mean[c]);
    }
    size_t i = 0;
    for (; i + 16 <= pixel_count; i += 16) {
        const __m128i *at = (const __m128i *)(pixels + 3 * i);
        __m128i b0 = _mm_loadu_si128(at), b1 = _mm_loadu_si128(at + 1),
                b2 = _mm_loadu_si128(at + 2);
        for (uint32_t c = 0; c < 3; c++) {
            __m128i channel = _mm_or_si128(
                _mm_or_si128(_mm_shuffle_epi8(b0, masks[c][0]), _mm_shuffle_epi8(b1, masks[c][1])),
                _mm_shuffle_epi8(b2, masks[c][2]));
            __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(channel));
            __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(channel, 8)));
            float *plane = planes + c * pixel_count + i;
            _mm256_storeu_ps(plane, _mm256_mul_ps(_mm256_sub_ps(low, mean[c]), scale[c]));
            _mm256_storeu_ps(plane + 8, _mm256_mul_ps(_mm256_sub_ps(high, mean[c]), scale[c]));
        }
    }
    planes_tail(plan, pixels, planes, i, pixel_count);
}

__attribute__((target("avx512f,avx512bw"))) static void planes_avx512(
    const struct lm_rgb8_plan *plan, const uint8_t *pixels, float *planes, size_t pixel_count) {
    __m128i masks[3][3];
    __m512 mean[3], scale[3];
    for (uint32_t c = 0; c < 3; c++) {
        uint8_t bytes[3][16];
        channel_masks(plan->source[c], bytes);
        for (uint32_t block = 0; block < 3; block++)
            masks[c][block] = _mm_loadu_si128((const __m128i *)bytes[block]);
        scale[c] = _mm512_set1_ps(plan->scale[c]);
        mean[c] = _mm512_set1_ps(plan->mean[c]);
    }
    size_t i = 0;
    for (; i + 16 <= pixel_count; i += 16) {
        const __m128i *at = (const __m128i *)(pixels + 3 * i);
        __m128i b0 = _mm_loadu_si128(at), b1 = _mm_loadu_si128(at + 1),
                b2 = _mm_loadu_si128(at + 2);
        for (uint32_t c = 0; c < 3; c++) {
            __m128i channel = _mm_or_si128(
                _mm_or_si128(_mm_shuffle_epi8(b0, masks[c][0]), _mm_shuffle_epi8(b1, masks[c][1])),
                _mm_shuffle_epi8(b2, masks[c][2]));
            __m512 value = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(channel));
            _mm512_storeu_ps(planes + c * pixel_count + i,
                             _mm512_mul_ps(_mm512_sub_ps(value, mean[c]), scale[c]));
        }
    }
    planes_tail(plan, pixels, planes, i, pixel_count);
}
#elif defined(__aarch64__)
#include <arm_neon.h>

static void planes_neon(const struct lm_rgb8_plan *plan, const uint8_t *pixels, float *planes,
                        size_t pixel_count) {
    size_t i = 0;
    for (; i + 16 <= pixel_count; i += 16) {
        uint8x16x3_t rgb = vld3q_u8(pixels + 3 * i);
        for (uint32_t c = 0; c < 3; c++) {
            uint8x16_t channel = rgb.val[plan->source[c]];
            uint16x8_t half[2] = {vmovl_u8(vget_low_u8(channel)), vmovl_u8(vget_high_u8(channel))};
            float *plane = planes + c * pixel_count + i;
            for (uint32_t h = 0; h < 2; h++) {
                float32x4_t low = vcvtq_f32_u32(vmovl_u16(vget_low_u16(half[h])));
                float32x4_t high = vcvtq_f32_u32(vmovl_u16(vget_high_u16(half[h])));
                float32x4_t mean = vdupq_n_f32(plan->mean[c]);
                vst1q_f32(plane + 8 * h, vmulq_n_f32(vsubq_f32(low, mean), plan->scale[c]));
                vst1q_f32(plane + 8 * h + 4, vmulq_n_f32(vsubq_f32(high, mean), plan->scale[c]));
            }
        }
    }
    planes_tail(plan, pixels, planes, i, pixel_count);
}
#endif

static const struct {
    const char *name;
    planes_kernel run;
} kernels[] = {
#if defined(__x86_64__)
    {"avx512", planes_avx512},
    {"avx2", planes_avx2},
#elif defined(__aarch64__)
    {"neon", planes_neon},
#endif
    {"scalar", planes_scalar},
};
enum { KERNEL_COUNT = sizeof kernels / sizeof kernels[0] };

static uint32_t first_kernel(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw")) return 0;
    if (__builtin_cpu_supports("avx2")) return 1;
    return 2;
#else
    return 0;
#endif
}

const char *lm_rgb8_kernel_name(uint32_t index) {
    uint32_t at = first_kernel() + index;
    return at < KERNEL_COUNT ? kernels[at].name : NULL;
}

void lm_rgb8_planes_with(uint32_t kernel, const struct lm_rgb8_plan *plan, const uint8_t *pixels,
                         float *planes, size_t pixel_count) {
    kernels[first_kernel() + kernel].run(plan, pixels, planes, pixel_count);
}

void lm_rgb8_plan_init(struct lm_rgb8_plan *plan, uint32_t channel_order, const float mean[3],
                       const float scale[3]) {
    for (uint32_t c = 0; c < 3; c++) {
        plan->source[c] = (uint8_t)(channel_order == LUMEN_CHANNELS_BGR ? 2 - c : c);
        plan->mean[c] = mean[c];
        plan->scale[c] = scale[c];
    }
}

/* Interleaved or byte tensors: plain loops, the compiler vectorises what it can. */
static void convert_other(const struct lm_rgb8_plan *plan, const uint8_t *pixels, void *tensor,
                          size_t pixel_count) {
    int planar = plan->layout == LM_LAYOUT_NCHW;
    for (uint32_t c = 0; c < 3; c++) {
        const uint8_t *source = pixels + plan->source[c];
        size_t start = planar ? c * pixel_count : c;
        size_t step = planar ? 1 : 3;
        if (plan->dtype == ORT_UINT8) {
            uint8_t *out = (uint8_t *)tensor + start;
            for (size_t i = 0; i < pixel_count; i++) out[i * step] = source[3 * i];
        } else {
            float *out = (float *)tensor + start;
            for (size_t i = 0; i < pixel_count; i++) {
                out[i * step] = ((float)source[3 * i] - plan->mean[c]) * plan->scale[c];
            }
        }
    }
}

void lm_rgb8_convert(const struct lm_rgb8_plan *plan, const uint8_t *pixels, void *tensor,
                     uint32_t rows) {
    size_t pixel_count = (size_t)plan->height * plan->width;
    for (uint32_t row = 0; row < rows; row++) {
        const uint8_t *from = pixels + row * 3 * pixel_count;
        if (plan->layout == LM_LAYOUT_NCHW && plan->dtype == ORT_FLOAT) {
            lm_rgb8_planes_with(0, plan, from, (float *)tensor + row * 3 * pixel_count,
                                pixel_count);
        } else {
            size_t element = plan->dtype == ORT_FLOAT ? sizeof(float) : 1;
            convert_other(plan, from, (uint8_t *)tensor + row * 3 * pixel_count * element,
                          pixel_count);
        }
    }
}
