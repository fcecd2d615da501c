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
#include "models/layout.h"
#include "models/steps.h"
#include "models/wide.h"
#include "onnx/ort.h"
#include "onnx/tensor.h"
#include "parts/arena.h"

struct lm_sequences;
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

/* No tensor has a place. */
static inline void lm_layout_clear(struct lm_layout *layout, const struct lm_model *model) {
    layout->raw = NULL;
    layout->raw_bytes = 0;
    for (uint32_t i = 0; i < model->input_count; i++) {
        layout->inputs[i] = NULL;
        layout->string_bytes[i] = 0;
    }
    for (uint32_t o = 0; o < model->output_count; o++) layout->outputs[o] = NULL;
}

int lm_model_open(struct lm_model *model, const struct lm_ort *ort,
                  const lumen_model_config *config, uint32_t index, uint32_t session_count);
/* One that an upstream serves: it has a name, and neither tensors nor sessions. */
int lm_model_open_elsewhere(struct lm_model *model, const lumen_model_config *config,
                            uint32_t index);
void lm_model_close(struct lm_model *model, const struct lm_ort *ort);
/* Whether a request that was read for one can be given to the other. */
bool lm_model_is_like(const struct lm_model *model, const struct lm_model *other);
/* Memory for so many tensors and their names. Returns 0 or LUMEN_E_NOMEM. */
int lm_model_hold_tensors(struct lm_model *model, uint32_t inputs, uint32_t outputs);
void lm_model_drop_tensors(struct lm_model *model);
/* Worker `index` of that node gets a session, or another. Returns 0 or LUMEN_E_ORT. */
int lm_model_open_session(struct lm_model *model, const struct lm_ort *ort, uint32_t node,
                          uint32_t index);
/* Unless it is the first one's. */
void lm_model_close_session(struct lm_model *model, const struct lm_ort *ort, uint32_t index);
/* models/signature.c: its tensors, as its first session has them, and as the file of this path
 * tells what the session does not. Returns 0 or LUMEN_E_*. */
int lm_model_read_signature(struct lm_model *model, const struct lm_ort *ort, const char *path);
/* Corrects what the graph says of its outputs by what they are in two requests of other sizes. */
void lm_model_try_sizes(struct lm_model *model, const struct lm_ort *ort);
/* The ns of a Run of one row of the smallest sizes, on zeros: the best of a few; 0: it fails. */
uint64_t lm_model_time_run(const struct lm_model *model, const struct lm_ort *ort);

/* models/pictures.c. Returns 0, or LUMEN_E_* where a setting for files of pictures does not fit. */
int lm_model_plan_pictures(struct lm_model *model, const lumen_model_config *config);

/* models/text_open.c. The graph's tensors give way to those of texts. Returns 0 or LUMEN_E_*. */
int lm_model_open_text(struct lm_model *model, const struct lm_ort *ort,
                       const lumen_text_config *config);

/* models/sizes.c. Gives every free dimension its largest size, and the rows: those of the
 * configuration, and defaults for the others. Returns 0, or LUMEN_E_* for a name of none. */
int lm_model_limit_sizes(struct lm_model *model, const lumen_model_config *config);
/* The index of the free dimension of that name; free_count: there is none. */
uint32_t lm_model_find_free(const struct lm_model *model, const char *name);
/* So many rows of the largest shape, and of the smallest. An input of any rank is a list. */
struct lm_sizes lm_model_largest(const struct lm_model *model, uint32_t rows);
struct lm_sizes lm_model_smallest(const struct lm_model *model, uint32_t rows);
/* Elements of all inputs in one row of these sizes; at least 1. */
uint64_t lm_model_row_elements(const struct lm_model *model, const struct lm_sizes *sizes);

/* The sizes of a row whose one input has so many bytes; false: they do not follow from that. */
bool lm_model_row_of_bytes(const struct lm_model *model, uint64_t bytes,
                           struct lm_sizes *sizes_out);
/* A request's payload in bytes, without credential and shape block; false when it overflows. */
bool lm_model_payload_bytes(const struct lm_model *model, uint8_t encoding,
                            const struct lm_sizes *sizes, size_t *bytes_out);
/* The slot a request of these sizes needs, whatever its encoding; false when it overflows. */
bool lm_model_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                         size_t *bytes_out);
/* The same of one that any of so many requests fits into, but for strings. */
bool lm_model_slot_bytes_of(const struct lm_model *model, const struct lm_sizes *sizes,
                            uint32_t count, size_t *bytes_out);
/* The same where its strings have so many bytes in all, lengths included. */
bool lm_model_slot_bytes_with(const struct lm_model *model, const struct lm_sizes *sizes,
                              size_t string_bytes, size_t *bytes_out);
/* Bytes of the slot for outputs that have no place before a Run: strings, and unknown shapes. By
 * default strings may be as long as those that came. */
bool lm_model_loose_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                          size_t string_bytes, size_t *bytes_out);
/* Of those, of an output whose shape only the Run tells; of any rank, as many as all inputs. */
size_t lm_model_unknown_bytes(const struct lm_model *model, const struct lm_tensor *output,
                              const struct lm_sizes *sizes);
/* How many times the strings of a request take their bytes in a reply that may repeat them. */
static inline uint32_t lm_model_echoes(const struct lm_model *model) {
    return model->string_inputs > 0 && model->string_outputs > 0 && model->output_bytes_are_default;
}
/* The bytes that are planned for an output of strings. */
bool lm_model_string_output_bytes(const struct lm_model *model, const struct lm_tensor *output,
                                  const struct lm_sizes *sizes, size_t *bytes_out);
/* Of the shapes of the inputs in the native protocol; rank is what they have of `free`. */
uint32_t lm_model_shape_block_bytes(const struct lm_model *model,
                                    const uint32_t free[LM_FREE_DIMS_MAX]);
/* Allocates a request's tensors in an empty slot that is large enough. */
void lm_model_layout(const struct lm_model *model, struct lm_slot *slot, uint8_t encoding,
                     const struct lm_sizes *sizes, struct lm_layout *layout_out);

/* `values` has room for input_count + output_count. Returns 0 or LUMEN_E_ORT. */
int lm_model_bind(const struct lm_model *model, const struct lm_ort *ort,
                  const struct lm_layout *layout, const struct lm_sizes *sizes,
                  struct lm_binding *binding, OrtValue **values);
/* Copies the strings of a request to its string tensors, whose first row is `row`; the lengths have
 * been checked (strings.h). Returns 0 or LUMEN_E_ORT. */
int lm_model_fill_strings(const struct lm_model *model, const struct lm_ort *ort,
                          const struct lm_layout *layout, const struct lm_sizes *sizes,
                          uint32_t row, struct lm_binding *binding, OrtValue **values);
void lm_model_unbind(const struct lm_model *model, const struct lm_ort *ort,
                     struct lm_binding *binding, OrtValue **values);
/* Whether ONNX Runtime writes this output to memory of ours, or allocates it. */
bool lm_output_is_wrapped(const struct lm_tensor *output, uint32_t rows);
/* The elements of an output. Returns 0 or LUMEN_E_ORT. */
int lm_model_count_elements(const struct lm_ort *ort, const OrtValue *value, size_t *count_out);
/* Whether an output has as many elements as are known beforehand. Returns 0 or LUMEN_E_ORT. */
int lm_model_check_count(const struct lm_ort *ort, const struct lm_tensor *output,
                         const OrtValue *value, const struct lm_sizes *sizes);
int lm_model_take_output(const struct lm_ort *ort, const struct lm_tensor *output, OrtValue **value,
                         void *place, size_t bytes);
/* Whether replies say the shapes of the outputs: a client cannot know them from the rows alone. */
static inline bool lm_model_tells_shapes(const struct lm_model *model) {
    return !model->outputs_known || model->free_count > 0;
}
#endif
