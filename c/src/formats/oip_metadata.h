/* oip_metadata.h: what the Open Inference Protocol says of the server and its models. Most of it
 * never changes: it is written once, at start, by the control thread, and only read afterwards. The
 * statistics are written anew for each request, to memory that the caller gives.
 */
#ifndef LM_FORMATS_OIP_METADATA_H
#define LM_FORMATS_OIP_METADATA_H

#include <stddef.h>
#include <stdint.h>

#include "models/model.h"

/* A JSON text in memory of its own, not terminated. */
struct lm_oip_document {
    char *text;
    size_t bytes;
};

/* Each returns 0 or LUMEN_E_NOMEM. */
/* `extensions` has at least one, and ends with NULL. */
int lm_oip_server_metadata(const char *name, const char *version, const char *const *extensions,
                           struct lm_oip_document *out);
/* `versions`: all that the model's name has, itself too. */
int lm_oip_model_metadata(const struct lm_model *model, struct lm_model *const *versions,
                          uint32_t version_count, struct lm_oip_document *out);
/* The answer to a readiness request for a model that is ready. */
int lm_oip_model_ready(const struct lm_model *model, struct lm_oip_document *out);
/* GET /v1/models/M: KServe's clients look at `ready`, TensorFlow Serving's at the first state. */
int lm_rows_model_state(const struct lm_model *model, struct lm_oip_document *out);
/* GET /v1/models/M/metadata: the signature that TensorFlow Serving's clients look for. */
int lm_rows_model_signature(const struct lm_model *model, struct lm_oip_document *out);
/* Of each name one model. */
int lm_rows_model_names(struct lm_model *const *models, uint32_t model_count,
                        struct lm_oip_document *out);
int lm_oip_repository_index(struct lm_model *const *models, uint32_t model_count,
                            struct lm_oip_document *out);
void lm_oip_document_close(struct lm_oip_document *document);

/* Executions with so many rows; times are sums over them. */
struct lm_oip_batch {
    uint64_t rows, runs;
    uint64_t input_ns, infer_ns, output_ns;
};

/* One model's figures since the start. Whoever fills this in takes them in one go: clients compare
 * the counts with each other. */
struct lm_oip_model_stats {
    const char *name;
    uint32_t version;
    uint64_t last_inference_ms; /* since the epoch; 0: none yet */
    uint64_t ok;                /* requests answered */
    uint64_t failed;
    uint64_t ok_ns; /* all of these are sums */
    uint64_t failed_ns;
    uint64_t queue_ns;
    uint64_t input_ns;
    uint64_t infer_ns;
    uint64_t output_ns;
    uint64_t rows; /* inferences in Triton's words */
    uint64_t runs; /* executions */
    uint64_t hits; /* requests answered from the response cache, beside those of `ok` */
    uint64_t misses;
    uint64_t hits_ns; /* like ok_ns, of the hits */
    uint64_t hit_ns;  /* of them, for looking up */
    uint64_t miss_ns; /* for looking up in vain, and keeping the answer */
    uint32_t batch_count;
    struct lm_oip_batch batches[LM_BATCH_SIZES]; /* by growing rows */
};

/* Adds a thread's executions of a size to those of the others. One size too many is left out. */
void lm_oip_stats_add_batch(struct lm_oip_model_stats *stats, const struct lm_oip_batch *batch);

/* {"model_stats":[...]}, in memory of fixed size. Allocates nothing. */
struct lm_oip_stats_page {
    char *text;
    size_t bytes, used;
    bool full; /* something did not fit, and nothing was written since */
    bool is_first;
};
/* Upper bound of what is written of so many models. */
size_t lm_oip_stats_bytes_max(uint32_t count);
void lm_oip_stats_begin(struct lm_oip_stats_page *page);
void lm_oip_stats_add(struct lm_oip_stats_page *page, const struct lm_oip_model_stats *stats);
void lm_oip_stats_end(struct lm_oip_stats_page *page);

#endif
