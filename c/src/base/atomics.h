/* atomics.h: atomic words that can only be touched by a function whose name says the memory order.
 *
 * A bare `x++` on these structs does not compile. Every use that is not relaxed carries a label in
 * a comment and names its partner, as in `D3: acquire: sees the limit; pairs with D1 in
 * server/server.c and D2`: a label of the same file stands last. Every relaxed use says why it may
 * be (tests/test_tidy.py). There is no stand-alone fence in this project: ThreadSanitizer does not
 * model them. Any thread.
 */
#ifndef LM_BASE_ATOMICS_H
#define LM_BASE_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LM_CACHE_LINE 64
#define LM_CACHE_ALIGNED _Alignas(LM_CACHE_LINE)

typedef struct lm_atomic_u32 {
    _Atomic(uint32_t) value;
} lm_atomic_u32;

typedef struct lm_atomic_u64 {
    _Atomic(uint64_t) value;
} lm_atomic_u64;

_Static_assert(sizeof(lm_atomic_u32) == 4, "a futex word is 4 bytes");
_Static_assert(sizeof(lm_atomic_u64) == 8, "a counter is 8 bytes");

static inline uint32_t lm_load_relaxed_u32(const lm_atomic_u32 *a) {
    return atomic_load_explicit(&a->value, memory_order_relaxed);
}
static inline uint32_t lm_load_acquire_u32(const lm_atomic_u32 *a) {
    return atomic_load_explicit(&a->value, memory_order_acquire);
}
static inline void lm_store_relaxed_u32(lm_atomic_u32 *a, uint32_t v) {
    atomic_store_explicit(&a->value, v, memory_order_relaxed);
}
static inline void lm_store_release_u32(lm_atomic_u32 *a, uint32_t v) {
    atomic_store_explicit(&a->value, v, memory_order_release);
}
static inline uint64_t lm_exchange_acq_rel_u64(lm_atomic_u64 *a, uint64_t v) {
    return atomic_exchange_explicit(&a->value, v, memory_order_acq_rel);
}
static inline uint32_t lm_exchange_acq_rel_u32(lm_atomic_u32 *a, uint32_t v) {
    return atomic_exchange_explicit(&a->value, v, memory_order_acq_rel);
}

static inline uint64_t lm_load_relaxed_u64(const lm_atomic_u64 *a) {
    return atomic_load_explicit(&a->value, memory_order_relaxed);
}
static inline uint64_t lm_load_acquire_u64(const lm_atomic_u64 *a) {
    return atomic_load_explicit(&a->value, memory_order_acquire);
}
static inline void lm_store_relaxed_u64(lm_atomic_u64 *a, uint64_t v) {
    atomic_store_explicit(&a->value, v, memory_order_relaxed);
}
static inline void lm_store_release_u64(lm_atomic_u64 *a, uint64_t v) {
    atomic_store_explicit(&a->value, v, memory_order_release);
}
static inline uint64_t lm_count_relaxed_u64(lm_atomic_u64 *a, uint64_t n) {
    return atomic_fetch_add_explicit(&a->value, n, memory_order_relaxed);
}
static inline uint64_t lm_add_acq_rel_u64(lm_atomic_u64 *a, uint64_t n) {
    return atomic_fetch_add_explicit(&a->value, n, memory_order_acq_rel);
}
static inline uint64_t lm_or_acq_rel_u64(lm_atomic_u64 *a, uint64_t bits) {
    return atomic_fetch_or_explicit(&a->value, bits, memory_order_acq_rel);
}
static inline uint64_t lm_and_acq_rel_u64(lm_atomic_u64 *a, uint64_t bits) {
    return atomic_fetch_and_explicit(&a->value, bits, memory_order_acq_rel);
}
static inline uint64_t lm_and_relaxed_u64(lm_atomic_u64 *a, uint64_t bits) {
    return atomic_fetch_and_explicit(&a->value, bits, memory_order_relaxed);
}
static inline uint64_t lm_sub_relaxed_u64(lm_atomic_u64 *a, uint64_t n) {
    return atomic_fetch_sub_explicit(&a->value, n, memory_order_relaxed);
}
static inline uint64_t lm_sub_acq_rel_u64(lm_atomic_u64 *a, uint64_t n) {
    return atomic_fetch_sub_explicit(&a->value, n, memory_order_acq_rel);
}
static inline bool lm_cas_weak_relaxed_u64(lm_atomic_u64 *a, uint64_t *expected, uint64_t v) {
    return atomic_compare_exchange_weak_explicit(&a->value, expected, v, memory_order_relaxed,
                                                 memory_order_relaxed);
}

/* Sequentially consistent: for algorithms that decide from several words at once. */
static inline uint64_t lm_load_seq_cst_u64(const lm_atomic_u64 *a) {
    return atomic_load_explicit(&a->value, memory_order_seq_cst);
}
static inline void lm_store_seq_cst_u64(lm_atomic_u64 *a, uint64_t v) {
    atomic_store_explicit(&a->value, v, memory_order_seq_cst);
}
static inline uint64_t lm_add_seq_cst_u64(lm_atomic_u64 *a, uint64_t n) {
    return atomic_fetch_add_explicit(&a->value, n, memory_order_seq_cst);
}
static inline uint64_t lm_or_seq_cst_u64(lm_atomic_u64 *a, uint64_t bits) {
    return atomic_fetch_or_explicit(&a->value, bits, memory_order_seq_cst);
}
static inline bool lm_cas_seq_cst_u64(lm_atomic_u64 *a, uint64_t *expected, uint64_t v) {
    return atomic_compare_exchange_strong_explicit(&a->value, expected, v, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

/* Adds to a word that only the calling thread writes: no locked instruction is needed. */
static inline void lm_add_single_writer_u64(lm_atomic_u64 *a, uint64_t n) {
    lm_store_relaxed_u64(a, lm_load_relaxed_u64(a) + n);
}

/* Plain words of structs that public headers lay out for other languages, where no wrapper can
 * be. */
static inline uint32_t lm_plain_load_relaxed_u32(const uint32_t *word) {
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}
static inline void lm_plain_store_relaxed_u32(uint32_t *word, uint32_t v) {
    __atomic_store_n(word, v, __ATOMIC_RELAXED);
}
static inline void lm_plain_store_release_u32(uint32_t *word, uint32_t v) {
    __atomic_store_n(word, v, __ATOMIC_RELEASE);
}
static inline uint32_t lm_plain_exchange_acq_rel_u32(uint32_t *word, uint32_t v) {
    return __atomic_exchange_n(word, v, __ATOMIC_ACQ_REL);
}
static inline void lm_plain_store_release_u64(uint64_t *word, uint64_t v) {
    __atomic_store_n(word, v, __ATOMIC_RELEASE);
}

/* Tells the core that this is a spin loop. */
static inline void lm_cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

#endif
