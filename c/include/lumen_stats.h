/* lumen_stats.h: statistics: the shared-memory file /dev/shm/lumen-<port>.
 *
 * A header, then field_count fields, then the models' names, then block_count blocks of block_bytes
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
#ifndef LUMEN_STATS_H
#define LUMEN_STATS_H

#include <stdint.h>

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

#endif
