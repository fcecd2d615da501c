/* lumen_model_config.h: what a model is opened with: its settings, sizes, pictures, texts, experts,
 * steps, sequences and warm-ups, and the rules between them. Plain data; strings are borrowed for
 * the call.
 */
#ifndef LUMEN_MODEL_CONFIG_H
#define LUMEN_MODEL_CONFIG_H

#include <stdint.h>

#include "lumen_config.h"

/* The size of one free dimension of a model, by the name that the graph gives it. */
typedef struct lumen_dim {
    const char *name;
    uint32_t size;  /* at least 1 */
    uint32_t fixed; /* 1: every request has this size; 0: it is the largest one */
} lumen_dim;

/* A text under a name, for what passes them on. */
typedef struct lumen_option {
    const char *name;
    const char *value;
} lumen_option;

/* An execution provider of ONNX Runtime: what may compute a part of a model's graph. */
typedef struct lumen_provider {
    const char *name; /* "openvino" or "OpenVINOExecutionProvider"; "cpu" is always the last */
    const lumen_option *options;
    uint32_t option_count; /* at most LUMEN_PROVIDER_OPTIONS_MAX */
    uint32_t reserved;
} lumen_provider;

enum {
    LUMEN_FILTER_BILINEAR = 0,
    LUMEN_FILTER_BICUBIC = 1,
    LUMEN_FILTER_BOX = 2,
    LUMEN_FILTER_NEAREST = 3
};
enum { LUMEN_FIT_STRETCH = 0, LUMEN_FIT_CROP = 1, LUMEN_FIT_LETTERBOX = 2 };

/* How the server prepares a picture's file for the model: it resizes the picture to the tensor's
 * sides as Pillow does, then computes numbers from its values as for rgb8 requests. */
typedef struct lumen_image_config {
    uint32_t filter;    /* LUMEN_FILTER_* */
    uint32_t fit;       /* LUMEN_FIT_* */
    uint32_t resize;    /* crop: the shorter side becomes so long first; 0: resize_ratio says it */
    uint32_t pad_value; /* letterbox: of the border's pixels, 0..255 */
    uint32_t upright;   /* 1: turned as EXIF says */
    uint32_t fast;      /* 1: large JPEGs are decoded at a lower resolution */
    uint32_t lenient;   /* 1: what a decoder warns of, such as a cut file, is no error */
    float resize_ratio; /* crop: times the tensor's shorter side; at least 1 */
    uint64_t max_pixels;
    uint64_t max_whole_pixels; /* of progressive and interlaced pictures */
} lumen_image_config;

/* The feature that a rule compares: of the row of an input, of a request, or of the row of an
 * output, once the lighter expert has run. */
enum lumen_feature {
    LUMEN_FEATURE_VARIANCE = 0,
    LUMEN_FEATURE_MEAN = 1,
    LUMEN_FEATURE_NORM = 2,   /* Euclid's */
    LUMEN_FEATURE_EDGES = 3,  /* mean square of what neighbours in lines and columns differ by */
    LUMEN_FEATURE_PIXELS = 4, /* of the picture as it was sent; of other requests, of the tensor */
    LUMEN_FEATURE_LENGTH = 5, /* bytes of strings */
    LUMEN_FEATURE_SIZE = 6,   /* of a free dimension */
    LUMEN_FEATURE_PROBABILITY = 7, /* the largest value */
    LUMEN_FEATURE_SOFTMAX = 8,     /* the largest value after a softmax */
    LUMEN_FEATURE_MARGIN = 9       /* between the two largest values */
};

/* One of the models that a virtual model may run. */
typedef struct lumen_expert {
    uint32_t model; /* its index, as lumen_add_model gave it */
    uint32_t reserved;
    double bound; /* of an input's feature: it takes what is below; of an output's: its answer
                   * stands from there on. The last one takes the rest, whatever its bound. */
} lumen_expert;

/* The rule of a virtual model. Of several rows the one that asks for the latest expert decides. */
typedef struct lumen_experts_config {
    uint32_t feature;   /* enum lumen_feature */
    uint32_t count;     /* 2..LUMEN_EXPERTS_MAX */
    const char *tensor; /* the input, the output or the free dimension; NULL: the only one, and of
                         * PIXELS */
    const lumen_expert *experts; /* from the lightest to the best; bounds below 7 ascend */
} lumen_experts_config;

/* A tensor of a step's model has another name in the ensemble. */
typedef struct lumen_step_tensor {
    const char *tensor; /* of the model */
    const char *name;   /* in the ensemble */
} lumen_step_tensor;

/* A model of an ensemble. It takes what the steps before it make, and what the request brings. */
typedef struct lumen_step {
    uint32_t model;       /* its index, as lumen_add_model gave it */
    uint32_t input_count; /* of `inputs`; tensors that are not there keep their names */
    const lumen_step_tensor *inputs;
    uint32_t output_count;
    uint32_t is_closed; /* 1: of the outputs those that are not listed are nobody's, as in Triton */
    const lumen_step_tensor *outputs;
} lumen_step;

typedef struct lumen_steps_config {
    uint32_t count;             /* 1..LUMEN_STEPS_MAX */
    uint32_t output_count;      /* 0: the ensemble answers with what no step takes */
    const lumen_step *steps;    /* each behind those whose outputs it takes */
    const char *const *outputs; /* names in the ensemble */
} lumen_steps_config;

/* A state of a sequence: what the output is after one Run, the input is in the next one. Both have
 * one type and shape; their free sizes count as 1. */
typedef struct lumen_state {
    const char *input;
    const char *output;
    const char *initial; /* that a sequence begins with, as the tensor's bytes; NULL: zeros */
    uint64_t initial_bytes;
} lumen_state;

/* A model whose answers depend on the requests before: each request names its sequence. These
 * tensors are none of the model's: inputs of one element that say where the sequence is (NULL: the
 * graph has none), and states. */
typedef struct lumen_sequences_config {
    const char *start; /* 1 in the first request */
    const char *end;   /* 1 in the last one */
    const char *ready; /* always 1 */
    const char *id;    /* the sequence's number; of strings: its id as text */
    const lumen_state *states;
    uint32_t state_count; /* at most LUMEN_STATES_MAX */
    uint32_t max_open;    /* sequences at a time, 1..LUMEN_SEQUENCES_MAX */
    uint32_t idle_ms;     /* after which one that nobody asked for may end; at least 1 */
    uint32_t reserved;
} lumen_sequences_config;

/* How the vectors of a text's tokens become one: a bit each. Of several bits the vectors are put
 * one behind the other, in this order. */
enum {
    LUMEN_POOLING_CLS = 1, /* of the first token */
    LUMEN_POOLING_MAX = 2,
    LUMEN_POOLING_MEAN = 4,
    LUMEN_POOLING_MEAN_SQRT_LEN = 8,  /* the sum, divided by the root of their number */
    LUMEN_POOLING_WEIGHTED_MEAN = 16, /* by their positions */
    LUMEN_POOLING_LAST_TOKEN = 32,
    LUMEN_POOLING_ALL = 63
};

/* The answer of a model of texts: a vector, scores, or what is named in it. */
enum { LUMEN_TEXT_EMBEDDING = 0, LUMEN_TEXT_SCORES = 1, LUMEN_TEXT_ENTITIES = 2 };
/* How the labels of tokens become entities: as they are; neighbours together; words first, by their
 * first token, the mean of their tokens' scores, or the token that is surest. */
enum {
    LUMEN_AGGREGATE_NONE = 0,
    LUMEN_AGGREGATE_SIMPLE = 1,
    LUMEN_AGGREGATE_FIRST = 2,
    LUMEN_AGGREGATE_AVERAGE = 3,
    LUMEN_AGGREGATE_MAX = 4
};
/* The function that a server applies to scores. */
enum { LUMEN_ACTIVATION_NONE = 0, LUMEN_ACTIVATION_SIGMOID = 1, LUMEN_ACTIVATION_SOFTMAX = 2 };

/* A model of texts: clients send `text` (and `text_pair`), the server makes the tokens that the
 * graph takes, and they get `embedding`, `scores` or `entities` (JSON), and `tokens`, the number of
 * each text's. */
typedef struct lumen_text_config {
    const char *tokenizer; /* a file as lumen_uring/text/compile.py lays it out */
    const char *output;    /* of the graph; NULL: the one that its names or shapes tell */
    uint32_t task;         /* LUMEN_TEXT_* */
    uint32_t pooling;      /* LUMEN_POOLING_*; 0: the graph's output is of whole texts already */
    uint32_t normalise;    /* 1: vectors have length 1 */
    uint32_t activation;   /* LUMEN_ACTIVATION_*, of scores */
    uint32_t has_pairs;    /* 1: each text has a second one */
    uint32_t tokens_max;   /* of a text with its special tokens, 3..LUMEN_TEXT_TOKENS_MAX */
    uint32_t may_cut;      /* 1: longer texts are cut; 0: they are refused */
    uint32_t prompt_count; /* at most LUMEN_PROMPTS_MAX */
    const lumen_option *prompts; /* by name, what is put before a text */
    uint32_t default_prompt;     /* 1 + its number, where a request names none; 0: none is */
    uint32_t aggregation;        /* LUMEN_AGGREGATE_*, of entities */
} lumen_text_config;

enum { LUMEN_FILL_ZEROS = 0, LUMEN_FILL_RANDOM = 1, LUMEN_FILL_BYTES = 2 };

/* An input of a warm-up request. */
typedef struct lumen_warmup_tensor {
    const char *name;
    const uint32_t *shape;
    uint32_t rank;
    uint32_t fill;    /* LUMEN_FILL_* */
    const char *data; /* of BYTES: as on the wire */
    uint64_t bytes;
} lumen_warmup_tensor;

/* A request that each worker runs before the model is ready; one that fails refuses the model. */
typedef struct lumen_warmup {
    const char *name; /* for messages */
    const lumen_warmup_tensor *inputs;
    uint32_t input_count;
    uint32_t count; /* how often; at least 1 */
} lumen_warmup;

/* The order of a picture's dimensions in a tensor, as a configuration file says it. */
enum { LUMEN_FORMAT_NONE = 0, LUMEN_FORMAT_NHWC = 1, LUMEN_FORMAT_NCHW = 2 };

/* A tensor as a model's configuration file declares it; clients that ask for the configuration are
 * told. A name that the model does not have is not looked at. */
typedef struct lumen_declared {
    const char *name;
    const char *label_file; /* NULL: none */
    uint32_t format;        /* LUMEN_FORMAT_*, of an input */
    uint32_t is_output;
    const int64_t *shape; /* that HTTP's clients say and see, -1 for the rows in front of it; NULL:
                           * the graph's. It is of the same bytes. */
    uint32_t rank;
    uint32_t no_rows; /* 1: its first dimension is no batch's: the file's max_batch_size is 0 */
} lumen_declared;

/* The ordinary settings of a model: whole numbers and choices, in the order of settings/models.py.
 * `auto` and `null` are 0. Each is a member of lumen_model_config, and refused outside its range.
 * 0 means "the default" only where the comment says so. */
#define LUMEN_MODEL_SETTINGS(SETTING)                                                              \
    SETTING(models, uint32_t, width, 0, LUMEN_WORKERS_MAX) /* cores of a Run, others being idle */ \
    SETTING(models, uint32_t, run, LUMEN_RUN_AUTO, LUMEN_RUN_WORKER)                               \
    SETTING(models, uint32_t, engine, LUMEN_ENGINE_AUTO, LUMEN_ENGINE_ORT)                         \
    SETTING(models, uint32_t, isolation, LUMEN_ISOLATION_NONE, LUMEN_ISOLATION_PROCESS)            \
    SETTING(models, uint32_t, isolation_hang_seconds, 0, 86400) /* 0: hang_seconds */              \
    SETTING(models, uint32_t, intra_op_threads, 1, 256)         /* of a session, for one Run */    \
    SETTING(models, uint32_t, channel_order, LUMEN_CHANNELS_RGB, LUMEN_CHANNELS_BGR)               \
    SETTING(models, uint32_t, max_rows, 0, UINT32_MAX) /* 0: what fits max_request_bytes */        \
    SETTING(models, uint32_t, max_output_bytes, 0, UINT32_MAX) /* of unknown shapes; 0: spills */  \
    SETTING(models, uint32_t, batch_size, 0, LUMEN_BATCH_MAX)  /* 0: the engine's */               \
    SETTING(models, uint32_t, max_queued, 0, UINT32_MAX) /* waiting requests, then 503; 0: any */  \
    SETTING(models, uint64_t, queue_timeout_us, 0, UINT64_MAX) /* for a worker; 0: no bound */     \
    SETTING(models, uint32_t, response_cache, 0, 1) /* answers may come from the response cache */

#define LUMEN_SETTING_MEMBER(section, type, name, least, most) type name;
typedef struct lumen_model_config {
    LUMEN_MODEL_SETTINGS(LUMEN_SETTING_MEMBER)
    const char *name; /* unique, 1..255 bytes: NAME, or NAME:VERSION beside others of that NAME */
    const char *path; /* an ONNX (or .ort) file */
    const char *cache_path; /* where the optimised graph is kept; NULL: in memory, made anew at each
                               start */
    float mean[3]; /* rgb8: tensor = (value - mean) * scale, in the model's channel order */
    float scale[3];
    uint32_t batch_delay_us; /* UINT32_MAX: the engine's */
    double rate;             /* requests a second; 0: no limit */
    uint32_t burst;          /* requests at once, at least 1 where rate is set */
    uint32_t label_bytes;    /* of `labels` */
    const char *labels;      /* one line per class, for the classification extension; NULL: none */
    const lumen_dim *dims;   /* sizes of free dimensions; NULL: none is set */
    uint32_t dim_count;
    const lumen_image_config *image; /* NULL: no files of pictures are taken */
    /* NULL: a model of its own. Else the model runs these, of which the last one says its tensors,
     * their sizes and what becomes of pictures: `path` and such settings are not looked at. */
    const lumen_experts_config *experts;
    /* NULL: no ensemble. Else the steps say its tensors, and the same settings are not looked at,
     * but for `max_rows`, which may be fewer than the steps take. */
    const lumen_steps_config *steps;
    const char *engine_path;         /* of the native engine's file; NULL: there is none */
    const char *engine_why;          /* why there is none; NULL: it is not said */
    uint32_t provider_count;         /* at most LUMEN_PROVIDERS_MAX */
    const lumen_provider *providers; /* each takes what it can of the graph, in this order; then the
                                      * CPU */
    uint32_t version;      /* what clients are told; a request that names none goes to the highest
                            * of the NAME; 0: 1 */
    uint32_t warmup_count; /* at most LUMEN_WARMUPS_MAX */
    const lumen_warmup *warmups;
    const lumen_sequences_config *sequences; /* NULL: each request stands alone */
    const lumen_text_config *text;           /* NULL: clients send what the graph takes */
    const char *file_name; /* that the configuration file gives the model; NULL: it gives none */
    const lumen_declared *declared;
    uint32_t declared_count;
    const uint32_t *preferred; /* a batch of so many rows waits for no more, 1..256 each */
    uint32_t preferred_count;
    uint32_t upstream; /* 1 + the index of the upstream that serves it, of which `upstream_model` is
                        * the model's name there; `path` and what is about tensors is not looked at.
                        * 0: it is served here */
    const char *upstream_model;
    uint64_t process_key; /* with LUMEN_ISOLATION_PROCESS: the caller's, of no other model */
} lumen_model_config;
#undef LUMEN_SETTING_MEMBER

/* The kinds of models that rules are for. */
enum { LUMEN_BESIDE_SEQUENCES, LUMEN_BESIDE_PROCESS, LUMEN_BESIDE_PROVIDERS, LUMEN_BESIDE_TEXT };

/* A setting that models of a kind may only have some values of. */
typedef struct lumen_rule {
    uint32_t kind; /* LUMEN_BESIDE_* */
    uint32_t reserved;
    const char *beside;   /* the kind in words */
    const char *setting;  /* of LUMEN_MODEL_SETTINGS */
    uint64_t allowed;     /* bit n: it may be n */
    const char *expected; /* the same in words */
    const char *because;
} lumen_rule;

#endif
