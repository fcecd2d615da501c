/* runner.h: the runner of a model. Each kind is an entry of one table: how it makes a Run, and what
 * it goes together with. A model has one kind, chosen by the control thread while it is opened;
 * afterwards any thread asks the table, and no other file asks for a kind by its name.
 *
 * Several cores for one Run (wide.h) are no kind: sessions and the native engine may have them.
 */
#ifndef LM_MODELS_RUNNER_H
#define LM_MODELS_RUNNER_H

#include "models/model.h"
#include "models/text_ask.h"

struct lm_sequence_turn;

/* One Run, as its thread gives it. */
struct lm_run {
    const struct lm_ort *ort;
    uint32_t worker;   /* whose room, engine or box is used */
    uint32_t session;  /* of the model's: the worker's own, or one that it shares */
    int32_t cpu;       /* that this thread is pinned to; -1: none */
    OrtValue **values; /* the model's inputs, then its outputs: of a Run on ONNX Runtime's values */
    void *const *inputs; /* where the tensors lie: of a Run in place */
    void *const *outputs;
    const struct lm_sizes *sizes;
    const struct lm_sequence_turn *turn; /* of a sequence; NULL: the request stands alone */
    struct lm_text_ask text;             /* of a model of texts */
    const struct lm_wide *wide;          /* the cores that it may use; NULL: one */
    uint64_t *steps_ns; /* of an ensemble: when the first step began and when each ended; or NULL */
    uint32_t optionals; /* bit n: `inputs` has the model's n-th optional input */
};

struct lm_runner {
    /* A Run on values; an output that is NULL is made. NULL: there is none. Returns 0 or
     * LUMEN_E_*. */
    int (*run)(const struct lm_model *model, const struct lm_run *run);
    /* A Run on the tensors where they lie, whose outputs are known before; NULL: there is none. */
    int (*run_in_place)(const struct lm_model *model, const struct lm_run *run);
    /* Whether it takes requests now: NULL, or why not, in `text`. NULL: it always does. */
    const char *(*why_down)(const struct lm_model *model, char *text, size_t text_bytes);
    /* The ns that one row took when it was warmed up elsewhere; NULL: workers warm it up. */
    uint64_t (*warm_ns)(const struct lm_model *model);
    bool is_virtual;     /* it has no session, and runs other models: all or one of them */
    bool runs_all_parts; /* one behind the other */
    bool is_apart;       /* its Runs are another process's, which has the sessions */
    bool is_engine;      /* Lumen's own code, whose time no value of an input decides */
    bool keeps_state;    /* from one request to the next: these are one version's */
    bool not_batched;    /* a state is one request's, or each row has a Run of its own */
    /* Why it does not go together with something; NULL: it does. */
    const char *not_wide;    /* Runs on several cores */
    const char *not_native;  /* the native engine in its place */
    const char *not_part;    /* experts and ensembles that run it */
    const char *not_regions; /* tensors in a native connection's region */
    const char *not_inline;  /* Runs on I/O threads */
    /* A virtual one says why its Runs are on I/O threads, as its parts' are, or on workers. */
    const char *parts_inline, *parts_on_workers;
};

extern const struct lm_runner lm_runners[LM_RUNNER_KINDS];

static inline const struct lm_runner *lm_runner_of(const struct lm_model *model) {
    return &lm_runners[model->runner];
}

/* One Run, on values or in place. Returns 0 or LUMEN_E_*. */
static inline int lm_model_make_run(const struct lm_model *model, bool in_place,
                                    const struct lm_run *run) {
    const struct lm_runner *runner = lm_runner_of(model);
    return (in_place ? runner->run_in_place : runner->run)(model, run);
}

static inline bool lm_model_is_virtual(const struct lm_model *model) {
    return lm_runner_of(model)->is_virtual;
}
/* NULL: it takes requests; or the reason, in `text`. */
static inline const char *lm_model_why_down(const struct lm_model *model, char *text,
                                            size_t text_bytes) {
    const struct lm_runner *runner = lm_runner_of(model);
    return runner->why_down ? runner->why_down(model, text, text_bytes) : NULL;
}

/* Runs it on bound values, on session `worker`; outputs of unknown shape come back allocated there.
 * Returns 0 or LUMEN_E_*. */
int lm_model_run(const struct lm_model *model, const struct lm_ort *ort, uint32_t worker,
                 OrtValue **values);
#endif
