/* format.h: the file of a native engine, as it lies on disk and in memory: lumen_uring writes it
 * (engine/file.py), engine/file.c maps and checks it, any thread reads it in place.
 *
 *   header | tables | weights, each part at a multiple of LM_ENGINE_ALIGN
 *
 * Numbers are as the processor holds them. `byte_order` tells a file of another machine; the
 * layout is the same for every instruction set. Offsets are from the start of the file.
 */
#ifndef LM_ENGINE_FORMAT_H
#define LM_ENGINE_FORMAT_H

#include <stdint.h>

#define LM_ENGINE_MAGIC "LMENGINE"

enum {
    LM_ENGINE_VERSION = 1,
    LM_ENGINE_BYTE_ORDER = 0x01020304,
    LM_ENGINE_ALIGN = 64,
    LM_ENGINE_PAGE = 4096,             /* of memory */
    LM_ENGINE_DIGEST_BYTES = 32,       /* BLAKE2b of header and tables */
    LM_ENGINE_BLOCK_BYTES = 256 << 10, /* the weights have a digest for each so many bytes */
    LM_ENGINE_BLOCK_DIGEST_BYTES = 16,
    LM_ENGINE_LAYERS_MAX = 64,
    LM_ENGINE_WIDTH_MAX = 1 << 20, /* elements of a row, anywhere in the network */
    LM_ENGINE_TREES_MAX = 1 << 20,
    LM_ENGINE_CLASSES_MAX = 4096,
    LM_ENGINE_NONE = 0xffffffff /* no such output */
};

enum lm_engine_kind { LM_ENGINE_DENSE = 1, LM_ENGINE_TREES = 2 };

enum lm_engine_section {
    LM_SECTION_LAYERS = 0, /* dense: struct lm_engine_layer */
    LM_SECTION_TREES = 1,  /* trees: struct lm_engine_tree */
    LM_SECTION_LABELS = 2, /* int64_t, one a class */
    LM_SECTION_BASE = 3,   /* trees: float, base values */
    LM_SECTION_BLOCKS = 4, /* digests of the weights' blocks */
    LM_SECTION_FLOATS = 5, /* dense: the weights, which begin here */
    LM_SECTION_NODES = 6,  /* trees: struct lm_engine_node */
    LM_SECTION_FLAGS = 7,  /* trees: a byte a node, see lm_tree_flag */
    LM_SECTION_ITEMS = 8,  /* trees whose leaves weigh several targets: struct lm_engine_item */
    LM_SECTION_COUNT = 9
};

struct lm_engine_place {
    uint64_t offset;
    uint64_t bytes;
};

enum lm_engine_activation {
    LM_ACTIVATION_NONE = 0,
    LM_ACTIVATION_RELU = 1,
    LM_ACTIVATION_SIGMOID = 2,
    LM_ACTIVATION_TANH = 3,
    LM_ACTIVATION_SOFTMAX = 4 /* over the row */
};

/* What becomes of the last layer's row, or of the trees' sums. */
enum lm_engine_head {
    LM_HEAD_PLAIN = 0,      /* dense: the row as it is; a label is the first largest element's */
    LM_HEAD_BINARY = 1,     /* dense: one element p becomes 1 - p and p */
    LM_HEAD_REGRESSOR = 2,  /* trees */
    LM_HEAD_CLASSIFIER = 3, /* trees, as ONNX Runtime makes labels and scores of their sums */
};

enum lm_engine_post {
    LM_POST_NONE = 0,
    LM_POST_LOGISTIC = 1,
    LM_POST_SOFTMAX = 2,
    LM_POST_SOFTMAX_ZERO = 3
};

enum lm_engine_compare {
    LM_COMPARE_LEQ = 0, /* the true branch where the feature is at most the threshold */
    LM_COMPARE_LT = 1,
    LM_COMPARE_GTE = 2,
    LM_COMPARE_GT = 3,
    LM_COMPARE_EQ = 4,
    LM_COMPARE_NEQ = 5,
    LM_COMPARE_MIXED = 6 /* of an ensemble: its nodes differ */
};

/* A byte of LM_SECTION_FLAGS: how the node compares, and whether NaN takes the true branch. */
enum lm_tree_flag { LM_TREE_COMPARE = 7, LM_TREE_NAN_IS_TRUE = 8 };

struct lm_engine_header {
    char magic[8];
    uint32_t byte_order;
    uint32_t version;
    uint8_t digest[LM_ENGINE_DIGEST_BYTES]; /* of the header behind it, and of the tables */
    uint64_t file_bytes;
    uint64_t tables_bytes;   /* of the header and the tables */
    uint64_t weights_offset; /* behind them */
    uint32_t kind;           /* enum lm_engine_kind */
    uint32_t head;           /* enum lm_engine_head */
    uint32_t inputs;         /* elements of an input row */
    uint32_t scores;         /* elements of a row of the output of numbers */
    uint32_t score_output;   /* its index among the model's outputs, or LM_ENGINE_NONE */
    uint32_t label_output;   /* of an output with an int64 a row, or LM_ENGINE_NONE */
    uint32_t targets;        /* trees: sums that are made of the leaves */
    uint32_t post;           /* trees: enum lm_engine_post */
    uint32_t compare;        /* trees: enum lm_engine_compare */
    uint32_t average;        /* trees: 1: sums are divided by the number of trees */
    uint32_t one_weight; /* trees: 1: a leaf holds its weight, for its tree's target; 0: its item's
                            index */
    uint32_t binary;     /* trees: 1: two classes of which one alone has weights */
    uint32_t all_positive; /* trees: 1: no weight is below 0 */
    uint32_t nan_is_true;  /* trees: 1: some node sends NaN to its true branch */
    struct lm_engine_place sections[LM_SECTION_COUNT];
};

/* y = activation(x W + b). The weights of 64 outputs at a time: for each input in turn those of the
 * 64, side by side. The last group has 16, 32, 48 or 64, filled up with zeros. */
struct lm_engine_layer {
    uint32_t kind;       /* enum lm_layer_kind */
    uint32_t activation; /* enum lm_engine_activation */
    uint32_t inputs;
    uint32_t outputs;
    uint64_t weights; /* index in LM_SECTION_FLOATS, a multiple of 16: W, or the offsets */
    uint64_t bias;    /* the same of b, outputs filled up to a multiple of 16; or the factors */
};

enum lm_layer_kind {
    LM_LAYER_LINEAR = 0,
    LM_LAYER_SCALE = 1 /* y = (x - weights) * bias, element by element */
};

enum { LM_PANEL = 64, LM_PANEL_STEP = 16 }; /* outputs */

struct lm_engine_tree {
    uint32_t first;  /* index in LM_SECTION_NODES, a multiple of 8: a cache line's first node */
    uint32_t count;  /* nodes; node 0 is not used, node 1 is the root */
    uint32_t depth;  /* steps from the root to the deepest leaf */
    uint32_t target; /* with one_weight: of all its leaves */
};

/* Of a branch: the threshold, the feature, and the index in the tree of the node for true; that
 * for false is the next one. Both are behind this node. Of a leaf: its weight or its item's index,
 * the number of features, behind which each row has NaN, and the index of the node before: every
 * comparison with NaN is false, so that a step from a leaf leads to itself. */
struct lm_engine_node {
    union {
        float threshold;
        float weight;
        uint32_t item;
    } value;
    uint16_t feature;
    uint16_t child;
};

/* One of a leaf's weights. Those of a leaf lie one behind the other. */
struct lm_engine_item {
    uint32_t target; /* with LM_ITEM_LAST in the last one */
    float weight;
};

#define LM_ITEM_LAST 0x80000000u

_Static_assert(sizeof(struct lm_engine_header) == 272, "Python writes it byte by byte");
_Static_assert(sizeof(struct lm_engine_layer) == 32, "as above");
_Static_assert(sizeof(struct lm_engine_tree) == 16, "as above");
_Static_assert(sizeof(struct lm_engine_node) == 8, "as above, and eight fill a cache line");
_Static_assert(sizeof(struct lm_engine_item) == 8, "as above");

/* Floats that the packed weights of a layer take for each input. */
static inline uint64_t lm_padded_outputs(uint64_t outputs) {
    return (outputs + LM_PANEL_STEP - 1) / LM_PANEL_STEP * LM_PANEL_STEP;
}

#endif
