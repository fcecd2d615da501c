/* wide.h: a further session of a model whose Runs use several cores: the calling thread's, and one
 * for each helper thread; or, for the native engine, a team of threads. The helpers sleep between
 * Runs.
 *
 * Opened and closed by the control thread. One thread at a time has its Run on it; which one, and
 * which cores the helpers get, work/width.c decides for each Run.
 */
#ifndef LM_MODELS_WIDE_H
#define LM_MODELS_WIDE_H

#include <pthread.h>
#include <semaphore.h>

#include "base/limits.h"
#include "onnx/ort.h"

struct lm_team; /* engine/team.h */
struct lm_wide;

struct lm_helper {
    struct lm_wide *wide;
    pthread_t thread;
    int32_t tid;
    void (*main)(void *); /* ONNX Runtime's */
    void *argument;
    sem_t named; /* its number is known */
};

struct lm_wide {
    OrtSession *session;  /* with neither of the two, Runs use one core */
    struct lm_team *team; /* of a model that the native engine runs */
    uint32_t width;       /* cores of a Run */
    uint32_t gain;        /* time of a Run on one core ÷ time on `width`, LM_GAIN_SHIFT bits behind
                           * the point; 1 << LM_GAIN_SHIFT: not known */
    bool flush_denormals; /* on the helpers */
    bool only_long;       /* Runs that are shorter than LM_WIDE_RUN_NS use one core */
    uint32_t helper_count;
    struct lm_helper helpers[LM_WIDTH_MAX - 1];
    char why[128]; /* how the width was found; "" before lm_server_widen */
};

/* Of a model without such a session. */
void lm_wide_init(struct lm_wide *wide);
/* On a copy of what the source maps (bytes 0: on that). Returns 0 or LUMEN_E_*; `wide` stays where
 * it is while it is open. */
int lm_wide_open(struct lm_wide *wide, const struct lm_ort *ort, const struct lm_ort_source *source,
                 const struct lm_mapping *copy, uint32_t width);
/* The same for the native engine. */
int lm_wide_open_team(struct lm_wide *wide, const struct lm_ort *ort, uint32_t width);
static inline bool lm_wide_is_open(const struct lm_wide *wide) {
    return wide->session || wide->team;
}
void lm_wide_close(struct lm_wide *wide, const struct lm_ort *ort);

/* What a Run on one core takes on several, and the other way round. */
static inline uint64_t lm_wide_ns(const struct lm_wide *wide, uint64_t narrow_ns) {
    return (narrow_ns << LM_GAIN_SHIFT) / wide->gain;
}
static inline uint64_t lm_wide_narrow_ns(const struct lm_wide *wide, uint64_t wide_ns) {
    return (wide_ns * wide->gain) >> LM_GAIN_SHIFT;
}

#endif
