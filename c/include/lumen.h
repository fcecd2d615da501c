/* lumen.h: the only public header of liblumen_uring.so.
 *
 * One opaque handle, plain-data structs, a dozen functions. Called from one control thread
 * (Python's main thread); every function may block except where it says otherwise, none is on a
 * request's path. All functions that can fail return 0 or a negative LUMEN_E*; lumen_last_error()
 * then holds one sentence for the calling thread: what was tried, on what, what was found, the
 * likely cure.
 *
 * Life of a handle: lumen_open, lumen_add_model (1..n), lumen_start, lumen_stop, lumen_wait,
 * lumen_close. lumen_close is allowed at any point and ends what still runs.
 */
#ifndef LUMEN_H
#define LUMEN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUMEN_API __attribute__((visibility("default")))

/* Raised with every change to a struct or a function below; Python refuses a library of another
 * number. */
#define LUMEN_ABI_VERSION 19u

enum {
    LUMEN_OK = 0,
    LUMEN_E_INVALID = -1,     /* an argument or a setting is out of range */
    LUMEN_E_NOMEM = -2,       /* memory could not be mapped or allocated */
    LUMEN_E_IO = -3,          /* a file or a socket refused */
    LUMEN_E_UNSUPPORTED = -4, /* the kernel, the machine or this build cannot do it */
    LUMEN_E_ORT = -5,         /* ONNX Runtime is missing or said no */
    LUMEN_E_MODEL = -6,       /* a model that cannot be served */
    LUMEN_E_STATE = -7,       /* called out of order */
    LUMEN_E_AGAIN = -8        /* lumen_wait: threads still run */
};

enum { LUMEN_IO_AUTO = 0, LUMEN_IO_URING = 1, LUMEN_IO_EPOLL = 2 };
enum lumen_queue_type {
    LUMEN_QUEUE_MPMC = 0,    /* Vyukov's bounded ring */
    LUMEN_QUEUE_SCQ = 1,     /* scalable circular queue: lock-free */
    LUMEN_QUEUE_SPSC = 2,    /* one I/O thread, one worker: wait-free */
    LUMEN_QUEUE_NAIVE = 3,   /* mutex and condition variable: the baseline */
    LUMEN_QUEUE_BATCHED = 4, /* the same, handing over whole batches */
    LUMEN_QUEUE_INLINE = 5   /* no queue: each I/O thread runs the models itself */
};
enum { LUMEN_QUEUE_AUTO = 6 }; /* MPMC, but for short Runs: see LUMEN_RUN_AUTO */
/* The thread that runs a model. */
enum lumen_run {
    LUMEN_RUN_AUTO = 0,   /* with LUMEN_QUEUE_AUTO the I/O thread, as long as a Run is short; else
                           * a worker */
    LUMEN_RUN_INLINE = 1, /* the I/O thread that received the request */
    LUMEN_RUN_WORKER = 2
};
/* The engine that computes a model's answers. */
enum lumen_engine {
    LUMEN_ENGINE_AUTO = 0,   /* the native engine, where it was faster and equal at start */
    LUMEN_ENGINE_NATIVE = 1, /* refused where it cannot be */
    LUMEN_ENGINE_ORT = 2
};
/* Where a model runs. */
enum lumen_isolation {
    LUMEN_ISOLATION_NONE = 0,   /* in the server */
    LUMEN_ISOLATION_PROCESS = 1 /* in a process of its own, which may crash alone */
};
enum { LUMEN_ALLOCATOR_ARENA = 0, LUMEN_ALLOCATOR_STANDARD = 1 };
enum lumen_idle {
    LUMEN_IDLE_ADAPTIVE = 0,
    LUMEN_IDLE_SPIN = 1,
    LUMEN_IDLE_YIELD = 2,
    LUMEN_IDLE_PARK = 3
};
/* The pages of the arenas: those that the kernel joins by itself, those of the pool that an
 * administrator reserved (vm.nr_hugepages), or small ones. */
enum { LUMEN_HUGE_TRANSPARENT = 0, LUMEN_HUGE_EXPLICIT = 1, LUMEN_HUGE_NONE = 2 };
enum { LUMEN_CHANNELS_RGB = 0, LUMEN_CHANNELS_BGR = 1 };
/* What becomes of a request beyond max_in_flight: status 4 / HTTP 503 at once, or it is not read
 * until there is room. */
enum { LUMEN_OVERLOAD_REFUSE = 0, LUMEN_OVERLOAD_WAIT = 1 };
/* Whether answers say how loaded the server is (endpoint-load-metrics): never, to clients that ask
 * for it, or to all. And HTTP's code of a request that was refused for lack of room or time. */
enum { LUMEN_ORCA_NEVER = 0, LUMEN_ORCA_ASKED = 1, LUMEN_ORCA_ALWAYS = 2 };
enum { LUMEN_OVERLOAD_503 = 0, LUMEN_OVERLOAD_429 = 1 };
/* Flags: may use the control endpoints from anywhere; its texts give way to all others; it is not
 * of a token, but of the name in a client's certificate. */
enum { LUMEN_KEY_ADMIN = 1, LUMEN_KEY_BULK = 2, LUMEN_KEY_SUBJECT = 4, LUMEN_KEY_FLAGS = 7 };

enum {
    LUMEN_WORKERS_MAX = 64,
    LUMEN_IO_THREADS_MAX = 16,
    LUMEN_NODES_MAX = 8,
    LUMEN_CONNECTIONS_MAX = 1048576,
    LUMEN_QUEUE_CAPACITY_MAX = 32768,
    LUMEN_BATCH_MAX = 256,
    LUMEN_MODELS_MAX = 4096,     /* at a time */
    LUMEN_EXPERTS_MAX = 8,       /* of a virtual model */
    LUMEN_STEPS_MAX = 16,        /* of an ensemble */
    LUMEN_WARMUPS_MAX = 64,      /* requests of a model */
    LUMEN_STATES_MAX = 120,      /* of a sequence */
    LUMEN_SEQUENCES_MAX = 65536, /* open at a time, of a model */
    LUMEN_TEXT_TOKENS_MAX = 32768,
    LUMEN_PROMPTS_MAX = 64, /* of a model of texts */
    LUMEN_SLOT_CLASSES_MAX = 16,
    LUMEN_FALLBACKS_MAX = 8, /* of a model */
    LUMEN_KEYS_MAX = 256,
    LUMEN_HOSTS_MAX = 32,
    LUMEN_CERTIFICATES_MAX = 32,
    LUMEN_UPSTREAMS_MAX = 16,
    LUMEN_UPSTREAM_ADDRESSES_MAX = 16,
    LUMEN_PROVIDERS_MAX = 8, /* of a model */
    LUMEN_PROVIDER_OPTIONS_MAX = 64
};

/* A client's key. Without any key nobody is asked for one. */
typedef struct lumen_key_config {
    const char *name;   /* for messages and metrics, 1..63 bytes */
    uint8_t sha256[32]; /* of the token, which is nowhere kept; or of the certificate's name */
    double rate;        /* requests a second; 0: no limit */
    double token_rate;  /* tokens of texts a second; 0: no limit */
    const char *const *models; /* names of those that it may use, with or without a version, also
                                * of models that come later; NULL: every model */
    uint32_t model_count;
    uint32_t burst;       /* requests at once, at least 1 where rate is set */
    uint32_t token_burst; /* the same of token_rate */
    uint32_t flags;       /* LUMEN_KEY_* */
} lumen_key_config;

/* The fields of lumen_config, in their order: of this list are made the struct, the table of
 * lumen_abi and the check of lumen_open. SETTING(section, type, name, least, most) is a number that
 * config.yaml has under the same name, in the same unit; it is refused outside of least..most.
 * FIELD(type, name) is any other field. Strings are borrowed for the call. */
#define LUMEN_CONFIG_FIELDS(SETTING, FIELD)                                                        \
    FIELD(uint32_t, abi_version)          /* LUMEN_ABI_VERSION */                                  \
    FIELD(uint32_t, access_as_json)       /* the form of the access log: 0 text, 1 JSON */         \
    FIELD(const char *, ort_library_path) /* libonnxruntime.so of the installed wheel */           \
    FIELD(const char *, name) /* of the server, for clients: 1 to 64 bytes; NULL: lumen */         \
    FIELD(const char *, host) /* an IPv4 or IPv6 address */                                        \
    SETTING(server, uint32_t, port, 0, 65535)      /* 0: any, see lumen_info.port */               \
    SETTING(server, uint32_t, grpc_port, 0, 65535) /* the same on another; 0: none */              \
    FIELD(const char *, unix_socket)               /* a path of at most 107 bytes; NULL: none */   \
    SETTING(server, uint32_t, unix_socket_mode, 0, 0777) /* of its file */                         \
    SETTING(server, uint32_t, io_backend, LUMEN_IO_AUTO, LUMEN_IO_EPOLL)                           \
    SETTING(server, uint32_t, io_threads, 0, LUMEN_IO_THREADS_MAX) /* 0: auto */                   \
    SETTING(server, uint32_t, max_connections, 1, LUMEN_CONNECTIONS_MAX)                           \
    SETTING(server, uint32_t, max_request_bytes, 0, 2u << 30) /* of one payload; 0: auto */        \
    SETTING(server, uint64_t, arena_bytes, 0, 1ull << 40)     /* of all slots together; 0: auto */ \
    SETTING(server, uint64_t, spill_bytes, 0, 1ull << 40) /* of answers beside slots; 0: auto */   \
    SETTING(server, uint32_t, shared_memory, 0, 1) /* clients may share memory with the server */  \
    SETTING(server, uint64_t, shared_memory_bytes, 0, 1ull << 40)  /* of all of them together */   \
    SETTING(server, uint64_t, response_cache_bytes, 0, 1ull << 40) /* of all models; 0: off */     \
    SETTING(server, uint32_t, default_timeout_ms, 0, 4294967)      /* 0: no deadline */            \
    SETTING(server, uint32_t, max_in_flight, 0, UINT32_MAX) /* unanswered requests; 0: auto */     \
    SETTING(server, uint32_t, overload, LUMEN_OVERLOAD_REFUSE, LUMEN_OVERLOAD_WAIT)                \
    SETTING(server, uint32_t, overload_status, LUMEN_OVERLOAD_503, LUMEN_OVERLOAD_429)             \
    SETTING(server, uint32_t, orca, LUMEN_ORCA_NEVER, LUMEN_ORCA_ALWAYS)                           \
    FIELD(double, rate) /* requests a second, 0.001 to 1e9, of all clients; 0: no limit */         \
    SETTING(server, uint32_t, burst, 0, UINT32_MAX) /* at once; beside a rate 1 or more */         \
    SETTING(server, uint32_t, header_timeout_ms, 0, 3600000) /* for a whole header; 0: none */     \
    SETTING(server, uint32_t, body_bytes_per_second, 0, UINT32_MAX) /* the least; 0: any speed */  \
    SETTING(server, uint32_t, reply_timeout_ms, 0, 3600000)   /* nothing of it is read; 0: none */ \
    SETTING(server, uint32_t, idle_timeout_seconds, 0, 86400) /* between requests; 0: none */      \
    SETTING(server, uint32_t, max_connection_age_seconds, 0, 604800) /* of HTTP; 0: none */        \
    SETTING(server, uint32_t, half_close, 0, 1)       /* HTTP: who sends no more may still read */ \
    SETTING(server, uint32_t, hang_seconds, 0, 86400) /* of one Run, then unready; 0: never */     \
    SETTING(server, uint32_t, connections_per_address, 0, UINT32_MAX) /* open at a time; 0: any */ \
    FIELD(const char *const *, hosts) /* that HTTP's Host may name besides localhost; "*": all */  \
    FIELD(uint32_t, host_count)       /* at most LUMEN_HOSTS_MAX */                                \
    FIELD(const lumen_key_config *, keys) /* copied */                                             \
    FIELD(uint32_t, key_count)            /* at most LUMEN_KEYS_MAX */                             \
    SETTING(engine, uint32_t, queue_type, LUMEN_QUEUE_MPMC, LUMEN_QUEUE_AUTO)                      \
    SETTING(engine, uint32_t, allocator_type, LUMEN_ALLOCATOR_ARENA, LUMEN_ALLOCATOR_STANDARD)     \
    SETTING(engine, uint32_t, thread_count, 0, LUMEN_WORKERS_MAX) /* 0: auto, the usable cores */  \
    SETTING(engine, uint32_t, queue_capacity, 2, LUMEN_QUEUE_CAPACITY_MAX) /* a power of two */    \
    SETTING(engine, uint32_t, batch_size, 1, LUMEN_BATCH_MAX) /* rows of one Run; 1: no batches */ \
    SETTING(engine, uint32_t, batch_delay_us, 0, 1000000)     /* a worker's wait for more rows */  \
    SETTING(engine, uint32_t, idle, LUMEN_IDLE_ADAPTIVE, LUMEN_IDLE_PARK) /* without work */       \
    SETTING(engine, uint32_t, busy_poll_us, 0, 1000000) /* 0: auto, by idle and the cores */       \
    FIELD(const char *, cores) /* "auto" or NULL, "isolated", or a list such as "0-3,8" */         \
    SETTING(engine, uint32_t, nodes, 0, LUMEN_NODES_MAX) /* 0: auto, the machine's */              \
    SETTING(engine, uint32_t, real_time, 0, 99)          /* SCHED_FIFO's priority; 0: none */      \
    SETTING(engine, uint32_t, lock_memory, 0, 1)         /* no page leaves memory */               \
    SETTING(engine, uint32_t, huge_pages, LUMEN_HUGE_TRANSPARENT, LUMEN_HUGE_NONE)                 \
    SETTING(engine, uint32_t, flush_denormals, 0, 1) /* the smallest numbers are zeros */          \
    FIELD(const char *, telemetry_csv_path)          /* a row per request; NULL: none */           \
    FIELD(const char *, access_path) /* a line per request; "-": stdout; NULL: none */

#define LUMEN_SETTING_MEMBER(section, type, name, least, most) type name;
#define LUMEN_FIELD_MEMBER(type, name) type name;
typedef struct lumen_config {
    LUMEN_CONFIG_FIELDS(LUMEN_SETTING_MEMBER, LUMEN_FIELD_MEMBER)
} lumen_config;
#undef LUMEN_FIELD_MEMBER

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

/* What a rule looks at: of the row of an input, of a request, or of the row of an output, once the
 * lighter expert has run. */
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

/* 0 means "the default" only where the comment says so. */
/* The ordinary settings of a model: whole numbers and choices, in the order of settings/models.py.
 * `auto` and `null` are 0. Each is a member of lumen_model_config, and refused outside its range.
 */
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
    uint64_t process_key; /* with LUMEN_ISOLATION_PROCESS: the caller's, of no other model; below */
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

/* What the process of a model needs to know. It inherits `fd` and hands all to lumen_serve_process.
 */
typedef struct lumen_process {
    uint64_t bytes;  /* of the memory that it has in common with the server */
    uint64_t at;     /* where in it the model's requests are */
    int32_t fd;      /* of this memory: the server's, closed by exec */
    uint32_t number; /* of the model's process: 1, and one more for each that ended */
    uint32_t workers;
    uint32_t flush_denormals;
    uint32_t gently; /* 1: it opens the model in time that nobody else wants */
    uint32_t reserved;
} lumen_process;

typedef struct lumen_slot_class {
    uint64_t slot_bytes;
    uint32_t slot_count;
    uint32_t reserved;
} lumen_slot_class;

/* A certificate that the server shows, and its key. */
typedef struct lumen_certificate {
    const char *certificate;  /* PEM: the server's own, then those that lead to its authority's */
    const char *key;          /* PEM, without a password */
    const char *source;       /* where they come from, for messages */
    const char *const *hosts; /* names that it is for, "*.example.org" too; none: those it says */
    uint32_t host_count;
    uint32_t reserved;
} lumen_certificate;

/* Clients that need no certificate, that may show one, that must. */
enum { LUMEN_TLS_CLIENTS_ANY = 0, LUMEN_TLS_CLIENTS_ASKED = 1, LUMEN_TLS_CLIENTS_CERTIFIED = 2 };

typedef struct lumen_tls_config {
    uint32_t port;                         /* 0: any, see lumen_info.tls_port */
    uint32_t only;                         /* 1: nobody listens on lumen_config.port */
    uint32_t clients;                      /* LUMEN_TLS_CLIENTS_* */
    uint32_t certificate_count;            /* 1..LUMEN_CERTIFICATES_MAX */
    const lumen_certificate *certificates; /* the first: for clients that name no host of others */
    const char *client_ca; /* PEM: the authorities of clients' certificates; NULL: none */
} lumen_tls_config;

/* The content of a certificate. */
typedef struct lumen_certificate_info {
    int64_t not_before; /* unix time, seconds */
    int64_t not_after;
    uint32_t is_rsa; /* 1: handshakes take three times as long as with P-256 */
    uint32_t reserved;
    char names[1024]; /* the DNS names that it is for, with spaces between them */
} lumen_certificate_info;

/* What lumen_start arrived at. */
typedef struct lumen_info {
    uint32_t port;
    uint32_t io_threads;
    uint32_t workers;
    uint32_t models;
    uint64_t arena_bytes; /* mapped for slots, all I/O threads together */
    uint64_t ready_us;    /* from lumen_open to ready */
    uint32_t slots;
    uint32_t slot_class_count;
    uint32_t tls_port; /* 0: none */
    uint32_t reserved;
    lumen_slot_class slot_classes[LUMEN_SLOT_CLASSES_MAX]; /* of one I/O thread */
    int32_t worker_cpus[LUMEN_WORKERS_MAX];                /* -1: not pinned */
    char io_backend[16];                                   /* "io_uring" or "epoll" */
    char io_detail[128];                                   /* its features in force */
    char ort_version[32];
    char stats_path[64];
    char budgets_path[64]; /* "": there are none */
    char nodes[1024]; /* lines: each node's threads, and where its pages lie; one node has none */
    char notes[1024]; /* lines: what was asked for and could not be had */
} lumen_info;

/* ---- statistics: the shared-memory file /dev/shm/lumen-<port> --------------------------------
 * header, then field_count fields, then the models' names, then block_count blocks of block_bytes
 * at blocks_offset. A block belongs to one thread, which alone writes it; a reader sees each 64-bit
 * word whole. A counter or gauge of several words has one for each model, in the order of the
 * names; counters of several threads add up, of a model's gauges the largest is the model's.
 * Histogram bucket b of a field at offset o is the u64 at o + 8*b. Its values are nanoseconds:
 * with S = 1 << sub_bits, a value v below S << unit_bits falls in bucket v >> unit_bits; above,
 * with e = floor(log2(v)), in bucket ((e - sub_bits - unit_bits) << sub_bits) + (v >> (e -
 * sub_bits)). The last bucket also holds everything above.
 * A histogram of each model has the layout that the header's model_histogram_* members give: that
 * of model m begins at o + m * model_stride with the sum of its values, then its buckets.
 */
enum {
    LUMEN_FIELD_COUNTER = 0,
    LUMEN_FIELD_GAUGE = 1,
    LUMEN_FIELD_HISTOGRAM = 2,
    LUMEN_FIELD_MODEL_HISTOGRAM = 3,
    LUMEN_FIELD_MODEL_COUNTER = 4,
    LUMEN_FIELD_MODEL_GAUGE = 5
};
enum { LUMEN_ROLE_IO = 0, LUMEN_ROLE_WORKER = 1, LUMEN_ROLE_BOTH = 255 };
#define LUMEN_STATS_MAGIC "LMNSTAT1"
#define LUMEN_STATS_VERSION 6u /* of the format described here, not of the fields in it */

typedef struct lumen_stats_header {
    char magic[8];
    uint32_t version; /* LUMEN_STATS_VERSION */
    uint32_t field_count;
    uint64_t fields_offset;
    uint64_t blocks_offset;
    uint64_t file_bytes;
    uint32_t block_count; /* grows with workers that come later */
    uint32_t block_bytes;
    uint32_t histogram_buckets;
    uint32_t histogram_sub_bits;
    uint32_t histogram_unit_bits;
    uint32_t pid;
    uint64_t start_realtime_ns;
    uint32_t state; /* LUMEN_STATE_*, written by the control thread */
    uint32_t port;
    uint64_t models_offset; /* model_count names of model_name_bytes each, padded with NULs */
    uint32_t model_count;
    uint32_t model_name_bytes;
    uint32_t model_histogram_buckets;
    uint32_t model_histogram_sub_bits;
    uint32_t model_histogram_unit_bits;
    uint32_t model_stride;   /* bytes from one model's words to the next one's */
    uint64_t experts_offset; /* of each model experts_max words: 1 + the index of the model that
                              * the counter model_expert_N is of; 0: there is none */
    uint32_t experts_max;
    uint32_t naming; /* odd while a row gets another model's name, and another number each time */
} lumen_stats_header;

enum {
    LUMEN_STATE_STARTING = 0,
    LUMEN_STATE_READY = 1,
    LUMEN_STATE_DRAINING = 2,
    LUMEN_STATE_STOPPED = 3
};

typedef struct lumen_stats_field {
    char name[32];
    uint32_t kind;   /* LUMEN_FIELD_* */
    uint32_t offset; /* from the start of a block; LUMEN_FIELD_MODEL_*: the first model's */
    uint32_t count;  /* u64 words: 1, histogram_buckets, or 1 + model_histogram_buckets */
    uint32_t role;   /* whose blocks use it: LUMEN_ROLE_* */
} lumen_stats_field;

/* Every block starts with this. */
typedef struct lumen_stats_block {
    uint32_t role;  /* LUMEN_ROLE_* */
    uint16_t index; /* of the thread within its role */
    uint16_t node;  /* whose it is: engine.nodes */
    int32_t cpu;    /* pinned to, -1: none */
    int32_t tid;
} lumen_stats_block;

/* Requests over HTTP that this program answers: POST /v2/repository/index, .../models/M/load and
 * .../models/M/unload. */
enum lumen_errand_kind {
    LUMEN_ERRAND_INDEX = 0,
    LUMEN_ERRAND_LOAD = 1,
    LUMEN_ERRAND_UNLOAD = 2,
    LUMEN_ERRAND_TRACE = 3, /* Triton's settings of traces and of the log: asked for, or changed */
    LUMEN_ERRAND_LOGGING = 4,
    LUMEN_ERRAND_DEMAND = 5 /* a request asks for a model that is not served: code 200, once it is,
                             * else why it cannot be; several requests may wait for it */
};

typedef struct lumen_errand {
    uint32_t id;
    uint32_t kind;    /* enum lumen_errand_kind */
    const char *name; /* of the model; "": the call names none */
    const char *body; /* terminated behind body_bytes */
    uint32_t body_bytes;
    uint32_t reserved;
} lumen_errand;

/* ---- ABI table: every public struct's fields, for a mirror in another language to compare
 * -------- */
typedef struct lumen_abi_field {
    const char *struct_name;
    const char *field_name;
    uint32_t offset;
    uint32_t size;
} lumen_abi_field;

/* Returns the table and its length; the field name "" gives the size of the whole struct. */
LUMEN_API const lumen_abi_field *lumen_abi(uint32_t *abi_version, uint32_t *field_count);
/* All rules between a model's settings; they stay as long as the library. */
LUMEN_API const lumen_rule *lumen_rules(uint32_t *count);
LUMEN_API const char *lumen_version(void);
LUMEN_API const char *lumen_last_error(void);

typedef struct lumen_server lumen_server;

/* Checks the settings, loads ONNX Runtime, reads the machine. No thread runs yet. */
LUMEN_API int lumen_open(const lumen_config *config, lumen_server **server_out);
/* Loads a model and one session per worker. Before lumen_start only. */
LUMEN_API int lumen_add_model(lumen_server *server, const lumen_model_config *model,
                              uint32_t *index_out);
/* Checks a native engine's file, as loading a model with it does; with `whole` all of its weights.
 */
LUMEN_API int lumen_check_engine(const char *path, uint32_t whole);
/* Maps the arenas, starts the threads, listens. Returns when requests are served. */
LUMEN_API int lumen_start(lumen_server *server);
/* Before lumen_start: where this program has its metrics page, for the page at / to say; 0: none.
 */
LUMEN_API int lumen_set_metrics_port(lumen_server *server, uint32_t port);
/* Before lumen_start: the server speaks TLS, on a port of its own. While it serves: other
 * certificates and authorities, from the next handshake on; the ports stay. Everything is copied.
 * On an error nothing has changed. LUMEN_E_UNSUPPORTED: the system has no OpenSSL 3. */
LUMEN_API int lumen_set_tls(lumen_server *server, const lumen_tls_config *config);
/* Reads the content of a certificate; any thread. Only `certificate` and `source` are looked at. */
LUMEN_API int lumen_look_at_certificate(const lumen_certificate *certificate,
                                        lumen_certificate_info *info_out);
/* For trying: a certificate that signs itself, for 90 days, and its key, both PEM. `names` as in
 * OpenSSL's subjectAltName: "DNS:localhost,IP:127.0.0.1". Any thread. */
LUMEN_API int lumen_make_certificate(const char *names, char *certificate_out, char *key_out,
                                     uint32_t capacity);
/* For a model with LUMEN_ISOLATION_PROCESS, named by its process_key, before lumen_start or later,
 * what its next process needs: the caller starts that and reports it with lumen_process_started;
 * lumen_process_is_up then says 1 once it takes requests, and 0 before. When it has ended, and
 * before it is reaped, or could not be started, the caller reports that with lumen_process_ended:
 * the signal, or 256 + its exit status. lumen_next_process returns LUMEN_E_AGAIN while a worker
 * still looks at the last one. lumen_load_model waits for the process: another thread calls these
 * meanwhile. Once no request needs a model that was replaced or unloaded, its process is killed,
 * and these return LUMEN_E_INVALID. */
LUMEN_API int lumen_next_process(lumen_server *server, uint64_t key, lumen_process *process_out);
LUMEN_API int lumen_process_started(lumen_server *server, uint64_t key, int32_t pid);
LUMEN_API int lumen_process_is_up(lumen_server *server, uint64_t key);
LUMEN_API int lumen_process_ended(lumen_server *server, uint64_t key, uint32_t end);
/* In the process of a model: opens it and runs it for the server, and returns only where it cannot
 * begin, with the error. */
LUMEN_API int lumen_serve_process(const lumen_process *process, const char *ort_library_path,
                                  const lumen_model_config *model);
/* Fills info. ort_version is there after lumen_open, slot_classes after lumen_describe, everything
 * else after lumen_start. */
LUMEN_API int lumen_get_info(lumen_server *server, lumen_info *info_out);
/* The models as JSON (UTF-8, not terminated), as `describe` answers it. Returns the whole length;
 * at most `capacity` bytes are written. Before lumen_start it decides what the models serve, as
 * lumen_start does; afterwards no model can be added. */
LUMEN_API int64_t lumen_describe(lumen_server *server, char *buffer, size_t capacity);
/* Which core each thread gets in which node, and why, as lines (UTF-8, not terminated), for the
 * settings and the models that were added. `root` is where /proc and /sys are found: NULL or "" for
 * this machine's, else those of a captured tree. Before lumen_start only. Returns as lumen_describe
 * does. */
LUMEN_API int64_t lumen_plan(lumen_server *server, const char *root, char *buffer, size_t capacity);
/* Takes over the keys, hosts and rate of `config`, and the rates of the models that are
 * named; nothing else there is looked at. Requests that are admitted keep
 * what they had. Refused as a whole, with the sentence, where one of these is wrong. On return new
 * requests are judged by the new table, unless an I/O thread was busy for a second. */
LUMEN_API int lumen_reload(lumen_server *server, const lumen_config *config,
                           const lumen_model_config *models, uint32_t model_count);
/* Loads a model into a running server: under a name of its own, or in the place of the model that
 * has the name. Returns once new requests go to it; those in flight finish with the one before. On
 * an error everything is as it was. Any thread; one load at a time, others wait. The index is where
 * the server keeps what it knows of the name, as long as the name is served. */
enum { LUMEN_LOAD_GENTLY = 1 }; /* flag: takes only what time nobody else wants (SCHED_IDLE) */
LUMEN_API int lumen_load_model(lumen_server *server, const lumen_model_config *config,
                               uint32_t flags, uint32_t *index_out);
/* Takes a model out of a running server: new requests for it are refused as of an unknown model,
 * those in flight are answered. Returns at once, also while models are loaded; one of this name
 * does not come then. Another name may have the index from then on, and another number on the wire.
 */
LUMEN_API int lumen_unload_model(lumen_server *server, const char *name);
/* The name of the model that was asked for longest ago, or came longest ago and was not asked for:
 * not one of those `spared`, nor one that an upstream serves, that is virtual, or that a virtual
 * one runs. LUMEN_E_INVALID where there is none, or `capacity` is too small. Any thread. */
LUMEN_API int lumen_longest_idle(lumen_server *server, const char *const *spared, uint32_t count,
                                 char *name_out, size_t capacity);
/* Puts queue_type, thread_count and allocator_type of the settings in force while the server
 * serves: requests that come from here on find them, those in flight go on as they are. Others of
 * the settings are not looked at. Threads that are not wanted sleep; those that are missing, up to
 * the cores of the server's one node, get sessions of all models first, which takes a while.
 * LUMEN_E_AGAIN: a worker or an I/O thread is in a Run for so long that the change goes on after
 * the return. On any other error nothing has changed, but threads may have come, which sleep. Any
 * thread. */
LUMEN_API int lumen_change_workers(lumen_server *server, const lumen_config *config);
/* Frees what was replaced or unloaded, as lumen_heartbeat does: 0 when nothing is left of it,
 * LUMEN_E_AGAIN when requests in flight still use some after timeout_ms. */
LUMEN_API int lumen_settle(lumen_server *server, uint32_t timeout_ms);
/* Opens the telemetry file and the access log again, soon, and says which form the access log has
 * from now on. What goes wrong is news. */
LUMEN_API int lumen_reopen(lumen_server *server, uint32_t access_as_json);
/* Copies the newest message of the server's threads since the last call: a sentence, terminated, or
 * "". Returns 0. */
LUMEN_API int lumen_news(lumen_server *server, char *buffer, size_t capacity);
/* 0 when every I/O thread has turned its loop since the last call that returned 0; LUMEN_E_AGAIN
 * when one has not yet. For a watchdog; also frees what lumen_reload replaced. */
LUMEN_API int lumen_heartbeat(lumen_server *server);
/* Before lumen_start: requests of some kinds (1 << enum lumen_errand_kind each) are answered by
 * this program, with the functions below. One thread may call lumen_next_errand, any thread the
 * others. A call that loads a model may have a body of so many bytes, at most 4 GiB; 0: as others,
 * at most 8 KiB. */
LUMEN_API int lumen_open_errands(lumen_server *server, uint32_t kinds, uint64_t upload_bytes);
/* The oldest request that waits: 0, or LUMEN_E_AGAIN when there is none for timeout_ms. What
 * errand_out points to is there until lumen_finish_errand. */
LUMEN_API int lumen_next_errand(lumen_server *server, uint32_t timeout_ms,
                                lumen_errand *errand_out);
/* From here on lumen_next_errand does not wait, nor does a call of it that does; any thread. */
LUMEN_API int lumen_end_errands(lumen_server *server);
/* Answers it: HTTP's code, and a body of JSON, which is copied; 0 bytes: none. */
LUMEN_API int lumen_finish_errand(lumen_server *server, uint32_t id, uint32_t code,
                                  const char *body, uint32_t body_bytes);
/* 1: the server says from here on that it is not ready, and goes on serving; 0: it is. */
LUMEN_API int lumen_hold_ready(lumen_server *server, uint32_t hold);
/* Readiness is off from here on; everything is served as before. For load balancers that still have
 * to notice. */
LUMEN_API int lumen_unready(lumen_server *server);
/* Begins the end: new connections are refused, new requests answered "shutting down", what is in
 * flight is finished for at most drain_ms. Returns at once; may be called again with a shorter
 * time. */
LUMEN_API int lumen_stop(lumen_server *server, uint32_t drain_ms);
/* 0 when all threads have ended (also by themselves, after an error that was printed),
 * LUMEN_E_AGAIN when some still run after timeout_ms, LUMEN_E_STATE before lumen_start. */
LUMEN_API int lumen_wait(lumen_server *server, uint32_t timeout_ms);
/* Ends whatever still runs and frees everything. NULL is allowed. */
LUMEN_API void lumen_close(lumen_server *server);
/* The cores this process may use: affinity mask, cgroup cpuset and cpu.max. Returns their number,
 * writes at most `capacity` of them. */
LUMEN_API int lumen_usable_cpus(int32_t *cpus_out, uint32_t capacity);

/* A feature of each row of an array as a rule has it, VARIANCE to EDGES or of an output; any
 * thread. `dtype` is ONNX's number, dims[0] the rows. Returns 0 or LUMEN_E_INVALID. */
LUMEN_API int lumen_feature(uint32_t feature, uint32_t dtype, const int64_t *dims, uint32_t rank,
                            const void *rows, double *values_out);

/* What HTTP answers a request with these headers, NULL where there is none: 0: it is for this
 * server; 421: Host names another; 403: Origin is of a page of another site. `hosts` as
 * server.hosts. Any thread. LUMEN_E_INVALID: too many hosts. */
LUMEN_API int lumen_http_site(const char *const *hosts, uint32_t host_count, const char *host,
                              const char *origin);

/* ---- text: what a file of lumen_uring/text/compile.py makes of it ---- */

typedef struct lumen_tokenizer lumen_tokenizer;

/* Checks and copies the file. Returns 0 or LUMEN_E_*. */
LUMEN_API int lumen_tokenizer_open(const void *file, uint64_t bytes, lumen_tokenizer **handle_out);
/* The ids and types of a text, or of a pair where `second` is not NULL, with special tokens, at
 * most `capacity`. `cut`: where there are more, 0: it is refused, 1: without its end, 2: without
 * its start. Returns their number or LUMEN_E_*. Any thread. */
LUMEN_API int64_t lumen_tokenizer_encode(const lumen_tokenizer *handle, const char *first,
                                         uint64_t first_bytes, const char *second,
                                         uint64_t second_bytes, int64_t *ids, int64_t *types,
                                         uint32_t capacity, uint32_t cut);
/* The text of some ids, with or without special tokens, of which at most `capacity` bytes are
 * written. Returns its length in bytes or LUMEN_E_*. Any thread. */
LUMEN_API int64_t lumen_tokenizer_decode(const lumen_tokenizer *handle, const uint32_t *ids,
                                         uint64_t count, uint32_t skips_special, char *out,
                                         uint64_t capacity);
/* NULL is allowed. */
LUMEN_API void lumen_tokenizer_close(lumen_tokenizer *handle);

#ifdef __cplusplus
}
#endif
#endif
