/* runner.c: see runner.h. The kinds of runners, one behind the other, and their table. */
#include "models/runner.h"

#include "models/process.h"
#include "models/sequences.h"
#include "models/steps.h"
#include "models/text_model.h"

/* ---- a session for each worker ---- */

/* A Run with some of the optional inputs, which are wrapped for it alone. */
static int run_with_optionals(const struct lm_model *model, const struct lm_run *run,
                              OrtSession *session) {
    const char *names[LM_TENSORS_MAX];
    OrtValue *values[LM_TENSORS_MAX];
    uint32_t count = model->input_count;
    int code = 0;
    for (uint32_t i = 0; i < count; i++) {
        names[i] = model->input_names[i];
        values[i] = run->values[i];
    }
    for (uint32_t i = 0; !code && i < model->optional_count; i++) {
        const uint32_t at = model->input_count + i;
        const struct lm_tensor *tensor = &model->inputs[at];
        if (!(run->optionals >> i & 1)) continue;
        names[count] = model->input_names[at];
        values[count] = lm_ort_wrap(run->ort, run->inputs[at], tensor->row_bytes, tensor->dims,
                                    tensor->rank, tensor->dtype);
        if (values[count])
            count++;
        else
            code = LUMEN_E_ORT;
    }
    if (!code)
        code =
            lm_ort_run(run->ort, session, names, (const OrtValue *const *)values, count,
                       model->output_names, run->values + model->input_count, model->output_count);
    while (count > model->input_count) lm_ort_value_close(run->ort, values[--count]);
    return code;
}

static int run_session(const struct lm_model *model, const struct lm_run *run) {
    OrtSession *session = run->wide ? run->wide->session : model->sessions[run->session];
    if (run->optionals) return run_with_optionals(model, run, session);
    return lm_ort_run(run->ort, session, model->input_names, (const OrtValue *const *)run->values,
                      model->input_count, model->output_names, run->values + model->input_count,
                      model->output_count);
}

/* ---- the native engine ---- */

static int run_engine(const struct lm_model *model, const struct lm_run *run) {
    lm_engine_run(&model->engine, run->worker, run->inputs[0], run->outputs, run->sizes->rows,
                  run->wide ? run->wide->team : NULL);
    return 0;
}

/* ---- a session and the states of sequences ---- */

static int run_sequence(const struct lm_model *model, const struct lm_run *run) {
    static const struct lm_sequence_turn beside = {
        .at = LM_SEQUENCE_NONE, .starts = true, .ends = true};
    return lm_sequences_run(model->sequences, run->ort, model->sessions[run->session],
                            run->turn ? run->turn : &beside, run->values, model->input_count,
                            model->output_count);
}

/* ---- a process of its own ---- */

static int run_in_process(const struct lm_model *model, const struct lm_run *run) {
    return lm_process_run(model->process, run->worker, run->cpu, model, run->inputs, run->outputs,
                          run->sizes);
}

static const char *why_process_is_down(const struct lm_model *model, char *text,
                                       size_t text_bytes) {
    return lm_process_is_up(model->process)
               ? NULL
               : lm_process_why(model->process, model->name, text, text_bytes);
}

static uint64_t process_warm_ns(const struct lm_model *model) {
    return model->process->boxes->warm_ns; /* it is warm before it takes requests */
}

/* ---- other models ---- */

static int run_steps(const struct lm_model *model, const struct lm_run *run) {
    return lm_steps_run(model->steps, run->ort, run->session, run->values, run->steps_ns);
}

/* Experts are warm already, as models of their own. */
static uint64_t experts_warm_ns(const struct lm_model *model) {
    uint64_t most = 0;
    for (uint32_t e = 0; e < model->experts.count; e++) {
        uint64_t warm_ns = model->experts.models[e]->warm_ns;
        if (warm_ns > most) most = warm_ns;
    }
    return most;
}

/* ---- texts ---- */

static struct lm_text_run text_run(const struct lm_model *model, const struct lm_run *run) {
    return (struct lm_text_run){.ort = run->ort,
                                .session =
                                    run->wide ? run->wide->session : model->sessions[run->session],
                                .worker = run->worker,
                                .rows = run->sizes ? run->sizes->rows : 0,
                                .ask = run->text};
}

static int run_texts_in_place(const struct lm_model *model, const struct lm_run *run) {
    const struct lm_text_run texts = text_run(model, run);
    return lm_text_run_in_place(model->text, &texts, run->inputs, run->outputs);
}

static int run_texts(const struct lm_model *model, const struct lm_run *run) {
    struct lm_text_run texts = text_run(model, run);
    return lm_text_run_on_values(model->text, &texts, run->values);
}

static uint64_t elsewhere_warm_ns(const struct lm_model *model) {
    (void)model;
    return 0; /* nobody knows */
}

const struct lm_runner lm_runners[LM_RUNNER_KINDS] = {
    [LM_RUNNER_SESSION] = {.run = run_session},
    [LM_RUNNER_NATIVE] = {.run = run_session, .run_in_place = run_engine, .is_engine = true},
    [LM_RUNNER_SEQUENCES] = {.run = run_sequence,
                             .keeps_state = true,
                             .not_batched = true,
                             .not_wide = "as set",
                             .not_native = "it has sequences",
                             .not_part = "has sequences, whose state no virtual model keeps"},
    [LM_RUNNER_PROCESS] =
        {.run_in_place = run_in_process,
         .why_down = why_process_is_down,
         .warm_ns = process_warm_ns,
         .is_apart = true,
         .not_wide = "it runs in a process of its own",
         .not_part = "runs in a process of its own, which no virtual model uses: set isolation: "
                     "none",
         .not_regions = "runs in a process of its own, which has no region",
         .not_inline = "it has a process of its own, which costs some 12 µs a request"},
    /* A request chooses one, whose runner runs it (lm_request_runs). */
    [LM_RUNNER_EXPERTS] = {.warm_ns = experts_warm_ns,
                           .is_virtual = true,
                           .not_wide = "as its experts have it",
                           .parts_inline = "so do its experts",
                           .parts_on_workers = "workers run one of its experts"},
    [LM_RUNNER_ENSEMBLE] = {.run = run_steps,
                            .is_virtual = true,
                            .runs_all_parts = true,
                            .not_wide = "its steps run on one core",
                            .parts_inline = "so do its steps",
                            .parts_on_workers = "workers run one of its steps"},
    [LM_RUNNER_TEXT] = {.run = run_texts,
                        .run_in_place = run_texts_in_place,
                        .not_native = "it takes texts",
                        .not_part = "takes texts, whose tokens no virtual model makes",
                        .not_batched = true,
                        .not_inline = "a text may be long"},
    [LM_RUNNER_UPSTREAM] = {.warm_ns = elsewhere_warm_ns,
                            .is_virtual = true,
                            .is_apart = true,
                            .not_batched = true,
                            .not_wide = "an upstream serves it",
                            .not_native = "an upstream serves it",
                            .not_part = "is served by an upstream, which no virtual model uses",
                            .not_regions = "is served by an upstream, which has no region",
                            .not_inline = "an upstream serves it"},
};

int lm_model_run(const struct lm_model *model, const struct lm_ort *ort, uint32_t worker,
                 OrtValue **values) {
    const struct lm_run run = {
        .ort = ort, .worker = worker, .session = worker, .cpu = -1, .values = values};
    return lm_runner_of(model)->run(model, &run);
}
