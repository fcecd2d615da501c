/* width.c: how many cores a Run of each model may use, found by trying. Control thread,
 * before the server's threads start: the machine is idle but for this.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/processor.h"
#include "base/topology.h"
#include "models/virtual.h"
#include "models/wide_trial.h"
#include "server/state.h"

/* With `width: auto` several cores must be so many times as fast, in percent; and so many times as
 * fast as half as many cores. */
enum { GAIN_PERCENT = 115, FURTHER_GAIN_PERCENT = 110 };

/* Why no Run of this server is wide; NULL: some may be. */
static const char *why_none(const lumen_server *server) {
    const struct lm_shared *shared = &server->shared;
    const lumen_config *config = &shared->config;
    uint32_t type = config->queue_type;
    if (type == LUMEN_QUEUE_INLINE) return "I/O threads run it";
    if (server->placement.nodes[0].worker_count < 2) return "there is one worker";
    if (shared->workers[0].cpu < 0) return "the workers are not pinned";
    if (config->idle == LUMEN_IDLE_SPIN || config->idle == LUMEN_IDLE_YIELD ||
        type == LUMEN_QUEUE_NAIVE || type == LUMEN_QUEUE_BATCHED)
        return "idle workers do not sleep where they are seen";
    return NULL;
}

static void narrow(struct lm_model *model, const char *why) {
    snprintf(model->wide.why, sizeof model->wide.why, "%s", why);
}

/* What runs the model on several cores of a node. */
static int open_on(const lumen_server *server, const struct lm_model *model, uint32_t node,
                   struct lm_wide *wide, uint32_t width) {
    const struct lm_ort *ort = &server->shared.ort;
    if (lm_runner_of(model)->is_engine) return lm_wide_open_team(wide, ort, width);
    return lm_wide_open(wide, ort, &model->source, &model->weights[node], width);
}

/* The same of the first node, its helpers on the cores of the workers after the first one. */
static int open_wide(lumen_server *server, struct lm_model *model, uint32_t width) {
    int code = open_on(server, model, 0, &model->wide, width);
    for (uint32_t h = 0; !code && h < model->wide.helper_count; h++)
        (void)lm_thread_pin_other(model->wide.helpers[h].tid, server->workers[h + 1].cpu);
    return code;
}

/* A width that was asked for: its gain is measured, but does not decide. */
static void take_width(lumen_server *server, struct lm_model *model, struct lm_wide_trial *trial,
                       uint32_t width) {
    const struct lm_ort *ort = &server->shared.ort;
    uint64_t wide_ns = 0;
    bool same;
    if (open_wide(server, model, width)) {
        narrow(model, "it cannot be opened on several cores");
        return;
    }
    if (!lm_wide_trial_run(trial, model, ort, &model->wide, &wide_ns, &same) && wide_ns > 0)
        model->wide.gain = (uint32_t)((trial->narrow_ns << LM_GAIN_SHIFT) / wide_ns);
    if (model->wide.gain == 0) model->wide.gain = 1;
    snprintf(model->wide.why, sizeof model->wide.why,
             "as set: a Run takes %llu us, on one core %llu us", (unsigned long long)wide_ns / 1000,
             (unsigned long long)trial->narrow_ns / 1000);
}

/* The fewest cores that are as fast as any, at least GAIN_PERCENT of one. */
static void find_width(lumen_server *server, struct lm_model *model, struct lm_wide_trial *trial) {
    const struct lm_ort *ort = &server->shared.ort;
    uint64_t best_ns = 0, wide_ns = 0;
    uint32_t best = 1, most = server->placement.nodes[0].worker_count;
    bool same = true;
    for (uint32_t width = most; width > 1; width /= 2) {
        if (open_wide(server, model, width)) break;
        int code = lm_wide_trial_run(trial, model, ort, &model->wide, &wide_ns, &same);
        lm_wide_close(&model->wide, ort);
        if (code || !same) break;
        if (best > 1 && wide_ns * 100 > best_ns * FURTHER_GAIN_PERCENT) break;
        best = width;
        best_ns = wide_ns;
    }
    char why[sizeof model->wide.why];
    bool pays = best > 1 && best_ns * GAIN_PERCENT <= trial->narrow_ns * 100;
    snprintf(why, sizeof why, "a Run takes %llu us on %u cores, %llu us on one",
             (unsigned long long)best_ns / 1000, best, (unsigned long long)trial->narrow_ns / 1000);
    if (!same) snprintf(why, sizeof why, "on several cores its answers differ in their last bits");
    if (best > 1 && pays && same && open_wide(server, model, best) == 0) {
        model->wide.only_long = true;
        model->wide.gain = (uint32_t)((trial->narrow_ns << LM_GAIN_SHIFT) / best_ns);
    } else if (best == 1 && same) {
        snprintf(why, sizeof why, "it cannot be run on several cores");
    }
    narrow(model, why);
}

/* The same for the other nodes, which have as many workers; where one cannot be had, Runs there use
 * one core. */
static void open_others(lumen_server *server, struct lm_model *model) {
    const struct lm_shared *shared = &server->shared;
    for (uint32_t n = 1; lm_wide_is_open(&model->wide) && n < shared->node_count; n++) {
        if (shared->nodes[n].thread_count < model->wide.width) continue;
        struct lm_wide *wide = calloc(1, sizeof *wide);
        if (!wide) return;
        if (shared->nodes[n].memory >= 0) lm_memory_prefer(shared->nodes[n].memory);
        int code = open_on(server, model, n, wide, model->wide.width);
        if (shared->nodes[n].memory >= 0) lm_memory_prefer(-1);
        if (code) {
            free(wide);
        } else {
            model->other_wides[n - 1] = wide;
        }
    }
}

static void widen(lumen_server *server, struct lm_model *model) {
    const struct lm_ort *ort = &server->shared.ort;
    struct lm_wide_trial trial;
    uint32_t most = server->placement.nodes[0].worker_count;
    const bool is_engine = lm_runner_of(model)->is_engine;
    if (!is_engine && !model->source.optimised.bytes) {
        narrow(model, "it cannot be kept in ONNX Runtime's own format");
        return;
    }
    if (is_engine && !model->engine.kernel) {
        narrow(model, "the native engine runs trees on one core");
        return;
    }
    if (lm_wide_trial_open(&trial, model, ort)) {
        narrow(model, "it fails on an input made up for a trial");
    } else if (model->width > 1) {
        take_width(server, model, &trial, model->width < most ? model->width : most);
    } else if (trial.narrow_ns < LM_WIDE_RUN_NS) {
        char why[64];
        snprintf(why, sizeof why, "a Run takes %llu us",
                 (unsigned long long)trial.narrow_ns / 1000);
        narrow(model, why);
    } else {
        find_width(server, model, &trial);
    }
    lm_wide_trial_close(&trial, model, ort);
    open_others(server, model);
}

/* A thread of its own: it is pinned, as the workers will be. */
static void *widen_all(void *argument) {
    lumen_server *server = argument;
    (void)lm_thread_pin(server->workers[0].cpu);
    if (server->shared.config.flush_denormals) (void)lm_processor_flush_denormals();
    for (uint32_t m = 0; m < server->set->count; m++) {
        struct lm_model *model = server->set->models[m];
        if (model->run == LUMEN_RUN_INLINE) {
            narrow(model, "I/O threads run it");
        } else if (model->width != 1 && !lm_runner_of(model)->not_wide) {
            widen(server, model);
        }
    }
    return NULL;
}

void lm_server_widen(lumen_server *server) {
    const char *none = why_none(server);
    bool any = false;
    for (uint32_t m = 0; m < server->set->count; m++) {
        struct lm_model *model = server->set->models[m];
        const struct lm_runner *runner = lm_runner_of(model);
        const char *why = model->source.providers.count > 0 ? "it has other providers"
                          : runner->not_wide                ? runner->not_wide
                          : model->width == 1               ? "as set"
                                                            : none;
        narrow(model, why ? why : "no thread to try it on");
        any = any || (model->width != 1 && !runner->not_wide);
    }
    if (none || !any) return;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&thread, NULL, widen_all, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!code) pthread_join(thread, NULL);
}
