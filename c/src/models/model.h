/* model.h: one served model: what its tensors are, how a request lies in a slot, its sessions.
 *
 * Opened and closed by the control thread. Afterwards everything is read-only, except that worker w
 * alone runs sessions[w] (all of a device's are one) and a slot's holder alone has its values.
 *
 * A model can be served if every input and output is a tensor of numbers, bools or strings, of at
 * most LM_RANK_MAX dimensions. A free first dimension of the inputs is the request's "rows"; up to
 * LM_FREE_DIMS_MAX others may be free, and those of one name have one size in a request. What is
 * left of these is for inputs without a shape in the graph, each an equal part: a request gives
 * them any shape of so many dimensions. Outputs may have any shape: one that does not follow from
 * these sizes is allocated by ONNX Runtime and copied once.
 */
#ifndef LM_MODELS_MODEL_H
#define LM_MODELS_MODEL_H

#include "base/limits.h"
#include "engine/engine.h"
#include "models/declared.h"
#include "models/experts.h"
#include "models/input_plan.h"
#include "models/labels.h"
#include "models/wide.h"
#include "onnx/ort.h"
#include "onnx/tensor.h"
#include "parts/arena.h"

struct lm_sequences;
struct lm_steps;
struct lm_text_model;
struct lm_warmups;

/* A free dimension beside the rows, or all dimensions of an input of any rank; these come last. */
struct lm_free_dim {
    char name[LM_TENSOR_NAME_BYTES_MAX]; /* the graph's, or INPUT[INDEX] where it has none; of any
                                          * rank: INPUT[...] */
    uint32_t max;     /* the largest size that is served; of any rank: the most elements */
    bool by_default;  /* nobody set the maximum */
    bool is_any_rank; /* it bounds an input without a shape in the graph */
    uint8_t place;    /* in the sizes of a request; the first one, of any rank */
};

/* The kinds of runners (runner.h). */
enum lm_runner_kind {
    LM_RUNNER_SESSION, /* a session for each worker */
    LM_RUNNER_NATIVE,  /* the native engine, and sessions for what it cannot answer in place */
    LM_RUNNER_SEQUENCES,
    LM_RUNNER_PROCESS,
    LM_RUNNER_EXPERTS,
    LM_RUNNER_ENSEMBLE,
    LM_RUNNER_TEXT,
    LM_RUNNER_UPSTREAM,
    LM_RUNNER_KINDS
};

/* What `describe` says of a model: control thread alone. */
struct lm_description {
    char *text; /* NULL: not written yet */
    size_t bytes;
    uint32_t long_run_us; /* the model's, when it was written */
};

struct lm_model {
    char name[LM_NAME_BYTES_MAX], base[LM_NAME_BYTES_MAX]; /* BASE, or BASE:VERSION beside others */
    uint32_t version, index, number; /* what the server keeps it by, and native clients call it */
    uint64_t generation;             /* no other model that this process opens has it; never 0 */
    bool caches;                     /* response_cache: answers may come from the response cache */
    struct lm_tensor *inputs, *outputs; /* lm_model_hold_tensors */
    const char **input_names, **output_names;
    uint32_t input_count, output_count;
    uint32_t optional_count; /* inputs with a value in the graph, behind the others in `inputs` */
    bool rows_free;          /* some input has a free first dimension */
    char rows_name[LM_TENSOR_NAME_BYTES_MAX]; /* the graph's; may be empty */
    struct lm_free_dim free_dims[LM_FREE_DIMS_MAX];
    uint32_t free_count;
    bool any_rank;      /* some input has no shape in the graph */
    bool outputs_known; /* every output's shape follows from the sizes of a request */
    uint32_t string_inputs, string_outputs, max_rows;
    uint32_t batch_size;                       /* rows of different requests in one Run; 1: none */
    uint32_t max_queued;                       /* requests that wait for a worker; 0: no bound */
    uint64_t batch_delay_ns, queue_timeout_ns; /* a worker's wait for them, a request's for one */
    uint64_t preferred[4];                     /* bit n: a batch of n + 1 rows waits for no more */
    uint32_t threads;                          /* of ONNX Runtime, for one Run */
    uint32_t run;        /* LUMEN_RUN_*; once chosen AUTO means: by the time a Run takes */
    const char *run_why; /* it was chosen; NULL: it was not */
    uint64_t run_ns;     /* of the smallest request, at start; 0: not measured, or it failed */
    /* The CPU time of a Run that took too long on an I/O thread: from then on the workers run the
     * model, whatever the estimate says. 0: no Run did. Atomic: models/run_place.h. */
    uint32_t long_run_us;
    bool long_run_told; /* to people; control thread */
    struct lm_description description;
    uint32_t channel_order;
    struct lm_input_plan input_plan;
    struct lm_labels labels;       /* of its classes; may be empty */
    struct lm_declared declared;   /* by its configuration file; may be empty */
    size_t max_output_bytes;       /* of a request's outputs that have no place before a Run */
    bool output_bytes_are_default; /* nobody set them: strings of a known shape add to them */
    struct lm_ort_source source;
    OrtSession *sessions[LM_RUNNERS_MAX];
    uint32_t session_count; /* of the workers' threads when it was opened, the first ones */
    uint32_t width;         /* of its Runs, as the settings say: cores; 0: auto */
    struct lm_wide wide;    /* what came of that, with the session of the first node */
    struct lm_wide *other_wides[LM_NODES_MAX - 1]; /* those of the others; NULL: none */
    struct lm_mapping weights[LM_NODES_MAX]; /* each node's copy of the graph; bytes 0: none */
    enum lm_runner_kind runner;              /* of its state one of these is used: */
    struct lm_experts experts;               /* that a virtual model runs: it has no session */
    struct lm_steps *steps;                  /* the same of an ensemble; NULL: it is none */
    struct lm_sequences *sequences;          /* its requests are parts of; NULL: they stand alone */
    struct lm_text_model *text;              /* makes its tokens; NULL: clients send tensors */
    uint32_t upstream;                       /* 1 + its number, where one serves it; 0: none does */
    char *upstream_model;                    /* its name there */
    struct lm_warmups *warmups;              /* warmup.h; NULL: none */
    struct lm_process *process;              /* that runs it in place of the sessions; NULL: none */
    uint32_t engine_wish;                    /* LUMEN_ENGINE_* */
    struct lm_engine engine;                 /* not open where it does not fit the model */
    char engine_why[192];
    /* What the threads of its server have of it: each I/O thread, each that runs models. */
    struct lm_io_model *sides[LUMEN_IO_THREADS_MAX]; /* flow/io_model.h */
    struct lm_batch *batches[LM_RUNNERS_MAX];        /* work/batch.h; NULL: not batched */
    struct lm_image_desk *desks[LM_RUNNERS_MAX];     /* work/image_body.h; NULL: its worker's */
    uint64_t warm_ns;   /* what one row took once it was warm; 0: it failed, or was not tried */
    uint64_t loaded_ms; /* unix time at which it began to serve, of one that came later; else 0 */
    bool strays;        /* a provider moves the thread that runs it: it is pinned after each Run */
    size_t reply_text_bytes; /* HTTP's part of every slot (text_slots.h); 0: no server's model */
    size_t picture_bytes;    /* for resampling any picture (image/rows.h); 0: it takes none */
    size_t late_row_bytes, late_text_bytes; /* the slots that one that came later needs; 0: none */
    uint32_t sets;                          /* that list it (flow/model_set.h) */
    uint32_t signature; /* models of one index and signature have the same tensors and sizes */
};

/* Whether an upstream serves it: nobody here runs it. */
static inline bool lm_model_is_elsewhere(const struct lm_model *model) {
    return model->upstream > 0;
}

/* Whether a request that was read for one can be given to the other. */
bool lm_model_is_like(const struct lm_model *model, const struct lm_model *other);
/* Memory for so many tensors and their names. Returns 0 or LUMEN_E_NOMEM. */
int lm_model_hold_tensors(struct lm_model *model, uint32_t inputs, uint32_t outputs);
void lm_model_drop_tensors(struct lm_model *model);
/* Whether replies say the shapes of the outputs: a client cannot know them from the rows alone. */
static inline bool lm_model_tells_shapes(const struct lm_model *model) {
    return !model->outputs_known || model->free_count > 0;
}

#endif
