/* wide.c: see wide.h. ONNX Runtime starts and joins its threads through two functions here. */
#include "models/wide.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/processor.h"
#include "base/topology.h"
#include "engine/team.h"

static void *helper_main(void *argument) {
    struct lm_helper *helper = argument;
    char name[16];
    snprintf(name, sizeof name, "lumen-x/%u", (unsigned)(helper - helper->wide->helpers + 1));
    pthread_setname_np(pthread_self(), name);
    helper->tid = lm_thread_id();
    if (helper->wide->flush_denormals) (void)lm_processor_flush_denormals();
    (void)lm_thread_set_slice(LM_HELPER_SLICE_NS); /* before Linux 6.12 there are none */
    sem_post(&helper->named);
    helper->main(helper->argument);
    return NULL;
}

/* NULL: the session cannot be opened. Signals are Python's main thread's. */
static void *start_helper(void *options, void (*main)(void *), void *argument) {
    struct lm_wide *wide = options;
    if (wide->helper_count == LM_WIDTH_MAX - 1) return NULL;
    struct lm_helper *helper = &wide->helpers[wide->helper_count];
    *helper = (struct lm_helper){.wide = wide, .main = main, .argument = argument};
    sigset_t all, before;
    sigfillset(&all);
    sem_init(&helper->named, 0, 0);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&helper->thread, NULL, helper_main, helper);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code) return NULL;
    while (sem_wait(&helper->named) != 0) continue;
    wide->helper_count++;
    return helper;
}

static void join_helper(void *handle) {
    struct lm_helper *helper = handle;
    pthread_join(helper->thread, NULL);
    sem_destroy(&helper->named);
}

void lm_wide_init(struct lm_wide *wide) {
    *wide = (struct lm_wide){.width = 1, .gain = 1 << LM_GAIN_SHIFT};
}

int lm_wide_open(struct lm_wide *wide, const struct lm_ort *ort, const struct lm_ort_source *source,
                 const struct lm_mapping *copy, uint32_t width) {
    const struct lm_ort_threads threads = {
        .count = width, .start = start_helper, .join = join_helper, .options = wide};
    lm_wide_init(wide);
    wide->width = width;
    wide->flush_denormals = ort->flush_denormals;
    int code = lm_ort_session_open_on(ort, source, copy, &threads, &wide->session);
    if (!code && wide->helper_count + 1 != width) {
        code = lm_error(LUMEN_E_ORT, "expected %u threads of ONNX Runtime, found %u", width - 1,
                        wide->helper_count);
    }
    if (code) lm_wide_close(wide, ort);
    return code;
}

int lm_wide_open_team(struct lm_wide *wide, const struct lm_ort *ort, uint32_t width) {
    lm_wide_init(wide);
    wide->team = aligned_alloc(LM_CACHE_LINE, sizeof *wide->team);
    if (!wide->team) return lm_error(LUMEN_E_NOMEM, "no memory for a team of threads");
    int code = lm_team_open(wide->team, width - 1, ort->flush_denormals);
    if (code) {
        free(wide->team);
        lm_wide_init(wide);
        return code;
    }
    wide->width = width;
    wide->helper_count = width - 1;
    for (uint32_t h = 0; h < wide->helper_count; h++)
        wide->helpers[h].tid = wide->team->helpers[h].tid;
    return 0;
}

void lm_wide_close(struct lm_wide *wide, const struct lm_ort *ort) {
    lm_ort_session_close(ort, wide->session);
    if (wide->team) lm_team_close(wide->team);
    free(wide->team);
    lm_wide_init(wide);
}
