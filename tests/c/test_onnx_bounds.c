/* test_onnx_bounds.c: onnx/bounds.c and onnx/operators.c, on graphs that are written here as
 * lines of text, and on bytes that are none. Inputs end at an unreadable page.
 */
#include "onnx/bounds.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "onnx/operators.h"

static struct check_guard guard;

/* ---- a model in its file's form ---- */

struct text {
    uint8_t bytes[8192];
    size_t count;
};

static void put_number(struct text *out, uint64_t number) {
    do {
        out->bytes[out->count++] = (uint8_t)((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
        number >>= 7;
    } while (number);
}

static void put_bytes(struct text *out, uint64_t field, const void *bytes, size_t count) {
    put_number(out, field << 3 | 2);
    put_number(out, count);
    memcpy(out->bytes + out->count, bytes, count);
    out->count += count;
}

/* Each word of a list, as a field of its own; "-" is an empty name. */
static const char *put_words(struct text *out, uint64_t field, const char *at) {
    for (;;) {
        size_t count = strcspn(at, ", >\n");
        put_bytes(out, field, at, *at == '-' ? 0 : count);
        at += count;
        if (*at != ',') return at;
        at++;
    }
}

/* "Operator inputs>outputs" or "domain:Operator ...": inputs and outputs are lists with commas. */
static const char *put_node(struct text *graph, const char *line) {
    struct text node = {.count = 0};
    const char *space = line + strcspn(line, " "),
               *colon = memchr(line, ':', (size_t)(space - line));
    const char *at = space + 1;
    if (*at != '>') at = put_words(&node, LM_ONNX_NODE_INPUT, at);
    at = put_words(&node, LM_ONNX_NODE_OUTPUT, at + 1);
    const char *name = colon ? colon + 1 : line;
    put_bytes(&node, LM_ONNX_NODE_OPERATOR, name, (size_t)(space - name));
    if (colon) put_bytes(&node, LM_ONNX_NODE_DOMAIN, line, (size_t)(colon - line));
    put_bytes(graph, LM_ONNX_GRAPH_NODE, node.bytes, node.count);
    return *at == '\n' ? at + 1 : at;
}

static void put_named(struct text *graph, uint64_t field, uint64_t name_field, const char *names) {
    while (*names) {
        struct text message = {.count = 0};
        size_t count = strcspn(names, ",");
        put_bytes(&message, name_field, names, count);
        put_bytes(graph, field, message.bytes, message.count);
        names += count + (names[count] == ',');
    }
}

struct graph {
    uint64_t ir_version;
    const char *inputs, *initializers, *nodes; /* lists of names; a node a line */
};

static void put_graph(struct text *out, uint64_t field, const struct graph *graph) {
    struct text inner = {.count = 0};
    for (const char *at = graph->nodes; *at;) at = put_node(&inner, at);
    put_named(&inner, LM_ONNX_GRAPH_INITIALIZER, LM_ONNX_TENSOR_NAME, graph->initializers);
    put_named(&inner, LM_ONNX_GRAPH_INPUT, LM_ONNX_INFO_NAME, graph->inputs);
    put_bytes(out, field, inner.bytes, inner.count);
}

static void put_model(struct text *out, const struct graph *graph) {
    put_number(out, LM_ONNX_MODEL_IR_VERSION << 3);
    put_number(out, graph->ir_version);
    put_graph(out, LM_ONNX_MODEL_GRAPH, graph);
}

static bool is_bounded(const struct text *model, char why[LM_ONNX_WHY_BYTES]) {
    uint8_t *at = check_guard_tail(&guard, model->count);
    memcpy(at, model->bytes, model->count);
    memset(why, '#', LM_ONNX_WHY_BYTES);
    bool bounded = lm_onnx_is_bounded(at, model->count, why);
    CHECK(bounded || strnlen(why, LM_ONNX_WHY_BYTES) < LM_ONNX_WHY_BYTES);
    return bounded;
}

/* ---- graphs ---- */

static const struct {
    struct graph graph;
    const char *why; /* NULL: it is bounded */
} cases[] = {
    /* The operators of usual small models. */
    {{8, "x", "w,b", "Gemm x,w,b>h\nRelu h>r\nSoftmax r>y"}, NULL},
    {{8, "x", "w,r", "LSTM x,w,r>y,h"}, NULL},
    {{8, "x", "", "ai.onnx.ml:Scaler x>s\nai.onnx.ml:LinearClassifier s>l,p\nCast p>y"}, NULL},
    {{8, "x", "", "ai.onnx.ml:TreeEnsembleClassifier x>l,p\nai.onnx:Identity p>y"}, NULL},
    {{8, "x", "s", "Conv x,w>c\nMaxPool c>p\nReshape p,s>y"}, NULL},
    {{8, "x", "w", "QuantizeLinear x,w,w>q\ncom.microsoft:QGemm q,w,w>y"}, NULL},
    {{8, "x,i", "", "Gather x,i>g\nArgMax g>y"}, NULL},
    {{8, "x", "", ""}, NULL},
    /* Sizes that follow from shapes and constants, through any operator. */
    {{8, "x", "a,b", "Shape x>s\nGather s,a>n\nUnsqueeze n,a>u\nConcat u,b>t\nReshape x,t>y"},
     NULL},
    {{8, "x", "", "Constant >k\nConstantOfShape k>z\nExpand x,z>y"}, NULL},
    {{8, "x", "", "Size x>n\nRange n,n,n>r\nTile x,r>y"}, NULL},
    {{8, "x", "k", "TopK x,k>v,i\nSplit v>a,b\nPad a,k,x>y"}, NULL},
    {{8, "x", "s", "Resize x,-,s>y"}, NULL},
    /* The values that flow through it do not matter, only those that decide sizes. */
    {{8, "x,v", "k", "OneHot x,k,v>o\nSlice o,k,k>y"}, NULL},
    {{8, "x", "n", "NonZeroed x>y"}, "it has NonZeroed, which may take any time"},
    /* A value of the request, directly and through others. */
    {{8, "n", "a,b", "Range a,n,b>r\nReduceSum r>y"}, "how much its Range makes"},
    {{8, "x,n", "", "Tile x,n>y"}, "how much its Tile makes"},
    {{8, "x,n", "", "Expand x,n>y"}, "how much its Expand makes"},
    {{8, "n", "", "ConstantOfShape n>y"}, "how much its ConstantOfShape makes"},
    {{8, "x,n", "", "Resize x,-,-,n>y"}, "how much its Resize makes"},
    {{8, "x,n", "", "Resize x,n,n>y"}, "how much its Resize makes"},
    {{8, "x,n", "", "Upsample x,n>y"}, "how much its Upsample makes"},
    {{8, "x,n", "", "Pad x,n>y"}, "how much its Pad makes"},
    {{8, "x,n", "v", "OneHot x,n,v>y"}, "how much its OneHot makes"},
    {{8, "x,n", "", "TopK x,n>y,i"}, "how much its TopK makes"},
    {{8, "x,n", "", "Reshape x,n>y"}, "how much its Reshape makes"},
    {{8, "x,n", "a", "Slice x,a,n>y"}, "how much its Slice makes"},
    {{8, "x,n", "", "ReduceSum x,n>y"}, "how much its ReduceSum makes"},
    {{8, "x,n", "", "Split x,n>y,z"}, "how much its Split makes"},
    {{8, "x,n", "a", "Cast n>c\nMul c,a>m\nConcat m,a>t\nTile x,t>y"}, "how much its Tile makes"},
    {{8, "x", "", "RandomUniform >n\nCast n>c\nTile x,c>y"}, "how much its Tile makes"},
    {{8, "x", "", "ReduceMax x>m\nShape m>s\nAdd s,m>n\nExpand x,n>y"},
     "how much its Expand makes"},
    /* Operators that are not known, whatever their domain says. */
    {{8, "x", "", "Loop x>y"}, "it has Loop, which"},
    {{8, "x", "", "Relu x>r\nScan r>y"}, "it has Scan, which"},
    {{8, "x", "", "If x>y"}, "it has If, which"},
    {{8, "x", "", "NonZero x>y"}, "it has NonZero, which"},
    {{8, "x", "", "NonMaxSuppression x>y"}, "it has NonMaxSuppression, which"},
    {{8, "x", "", "Compress x,x>y"}, "it has Compress, which"},
    {{8, "x", "", "Unique x>y"}, "it has Unique, which"},
    {{8, "x", "", "RoiAlign x,x,x>y"}, "it has RoiAlign, which"},
    {{8, "x", "", "StringConcat x,x>y"}, "it has StringConcat, which"},
    {{8, "x", "", "SequenceConstruct x>y"}, "it has SequenceConstruct, which"},
    {{8, "x", "", "com.acme:Relu x>y"}, "it has com.acme.Relu, which"},
    {{8, "x", "", "ai.onnx.ml:Relu x>y"}, "it has ai.onnx.ml.Relu, which"},
    {{8, "x", "", "ai.onnx.m:Scaler x>y"}, "it has ai.onnx.m.Scaler, which"},
    {{8, "x", "", "com.\"\\\t:E\x1b x>y"}, "it has com.___.E_, which"},
    /* Nodes out of order: what is not there yet is not known. */
    {{8, "x", "a", "Tile x,t>y\nIdentity a>t"}, "how much its Tile makes"},
    /* A constant that a request may replace, and one of the time when all were listed. */
    {{8, "x,a", "a", "Tile x,a>y"}, "how much its Tile makes"},
    {{4, "x,a", "a", "Tile x,a>y"}, "how much its Tile makes"},
    {{3, "x,a", "a", "Tile x,a>y"}, NULL},
    {{3, "x,a", "", "Tile x,a>y"}, "how much its Tile makes"},
    /* A name that is made twice is trusted as little as either. */
    {{8, "x", "a", "Identity x>t\nIdentity a>t\nTile x,t>y"}, "how much its Tile makes"},
    {{8, "x", "a", "Identity a>t\nIdentity x>t\nTile x,t>y"}, "how much its Tile makes"},
    {{8, "x", "a", "Identity x>a\nTile x,a>y"}, "how much its Tile makes"},
};

static void graphs(void) {
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct text model = {.count = 0};
        char why[LM_ONNX_WHY_BYTES];
        CHECK_AT("case %zu: %s", c, cases[c].graph.nodes);
        put_model(&model, &cases[c].graph);
        bool bounded = is_bounded(&model, why);
        CHECK(bounded == !cases[c].why);
        CHECK(bounded || strstr(why, cases[c].why));
    }
}

/* Operators, and the places of all inputs whose values decide how much they make: of these each is
 * a value of the request in turn. */
static void every_input(void) {
    static const char *const operators[] = {"AffineGrid 1",
                                            "BlackmanWindow 0",
                                            "CenterCropPad 1",
                                            "Col2Im 12",
                                            "ConstantOfShape 0",
                                            "DFT 12",
                                            "Expand 1",
                                            "HammingWindow 0",
                                            "HannWindow 0",
                                            "MaxUnpool 2",
                                            "MelWeightMatrix 01234",
                                            "OneHot 1",
                                            "Pad 13",
                                            "Range 012",
                                            "ReduceL1 1",
                                            "ReduceL2 1",
                                            "ReduceLogSum 1",
                                            "ReduceLogSumExp 1",
                                            "ReduceMax 1",
                                            "ReduceMean 1",
                                            "ReduceMin 1",
                                            "ReduceProd 1",
                                            "ReduceSum 1",
                                            "ReduceSumSquare 1",
                                            "Reshape 1",
                                            "Resize 123",
                                            "STFT 13",
                                            "Slice 1234",
                                            "Split 1",
                                            "Squeeze 1",
                                            "Tile 12",
                                            "TopK 1",
                                            "Unsqueeze 1",
                                            "Upsample 1",
                                            "com.microsoft:QLinearReduceMean 1",
                                            "Concat ",
                                            "Gather ",
                                            "Where ",
                                            "Clip "};
    for (size_t o = 0; o < sizeof operators / sizeof operators[0]; o++) {
        int name_bytes = (int)strcspn(operators[o], " ");
        for (int place = 0; place < 5; place++) {
            char node[64], why[LM_ONNX_WHY_BYTES], inputs[] = "a,a,a,a,a";
            struct text model = {.count = 0};
            inputs[2 * place] = 'n';
            snprintf(node, sizeof node, "%.*s %s>y", name_bytes, operators[o], inputs);
            put_model(&model, &(struct graph){8, "n", "a", node});
            CHECK_AT("%s", node);
            CHECK(is_bounded(&model, why) == !strchr(operators[o] + name_bytes, '0' + place));
        }
    }
}

/* As many names as there are places in no table's first size. */
static void many_names(void) {
    static char nodes[8192];
    struct text model = {.count = 0};
    char why[LM_ONNX_WHY_BYTES];
    size_t used = 0;
    for (int n = 0; n < 300; n++)
        used += (size_t)snprintf(nodes + used, sizeof nodes - used, "Abs v%d>v%d\n", n, n + 1);
    (void)snprintf(nodes + used, sizeof nodes - used, "Tile x,v300>y");
    struct graph graph = {8, "x", "v0", nodes};
    put_model(&model, &graph);
    CHECK(is_bounded(&model, why));
    graph.initializers = "";
    model.count = 0;
    put_model(&model, &graph);
    CHECK(!is_bounded(&model, why));
}

/* Other contents of a file, besides one graph or in its place. */
static void files(void) {
    static const struct graph good = {8, "x", "", "Relu x>y"}, bad = {8, "x", "", "Loop x>y"};
    char why[LM_ONNX_WHY_BYTES];
    struct text model = {.count = 0};
    CHECK(!is_bounded(&model, why) && strstr(why, "cannot be read"));
    put_model(&model, &good);
    CHECK(is_bounded(&model, why));
    struct text functions = model, twice = model;
    put_bytes(&functions, LM_ONNX_MODEL_FUNCTIONS, "", 0);
    CHECK(!is_bounded(&functions, why) && strstr(why, "functions"));
    put_graph(&twice, LM_ONNX_MODEL_GRAPH, &bad);
    CHECK(!is_bounded(&twice, why) && strstr(why, "cannot be read"));
    /* A number where a message or a name belongs is another field to Protocol Buffers. */
    struct text number = {"\x38\x01", 2}, names = {.count = 0};
    CHECK(!is_bounded(&number, why) && strstr(why, "cannot be read"));
    struct text node = {.count = 0}, inner = {.count = 0};
    put_bytes(&node, LM_ONNX_NODE_OPERATOR, "Relu", 4);
    put_number(&node, LM_ONNX_NODE_INPUT << 3);
    put_number(&node, 5);
    put_number(&node, LM_ONNX_NODE_OUTPUT << 3);
    put_number(&node, 5);
    put_bytes(&inner, LM_ONNX_GRAPH_NODE, node.bytes, node.count);
    put_bytes(&names, LM_ONNX_MODEL_GRAPH, inner.bytes, inner.count);
    CHECK(is_bounded(&names, why));
    struct text runtime = {"\0\0\0\0ORTM.....", 14};
    CHECK(!is_bounded(&runtime, why) && strstr(why, "ONNX Runtime"));
}

/* Of operators and domains that are named twice the last ones count, as for Protocol Buffers. */
static void named_twice(void) {
    static const struct {
        const char *operators[2], *domains[2];
        bool bounded;
    } nodes[] = {{{"Relu", "Loop"}, {"", ""}, false},
                 {{"Loop", "Relu"}, {"", ""}, true},
                 {{"Relu", "Relu"}, {"", "com.acme"}, false},
                 {{"Relu", "Relu"}, {"com.acme", ""}, true}};
    for (size_t n = 0; n < sizeof nodes / sizeof nodes[0]; n++) {
        struct text node = {.count = 0}, graph = {.count = 0}, model = {.count = 0};
        char why[LM_ONNX_WHY_BYTES];
        for (int i = 0; i < 2; i++) {
            const char *name = nodes[n].operators[i], *domain = nodes[n].domains[i];
            put_bytes(&node, LM_ONNX_NODE_OPERATOR, name, strlen(name));
            put_bytes(&node, LM_ONNX_NODE_DOMAIN, domain, strlen(domain));
        }
        put_bytes(&graph, LM_ONNX_GRAPH_NODE, node.bytes, node.count);
        put_bytes(&model, LM_ONNX_MODEL_GRAPH, graph.bytes, graph.count);
        CHECK_AT("node %zu", n);
        CHECK(is_bounded(&model, why) == nodes[n].bounded);
    }
}

/* Cut anywhere, and with other bytes anywhere: nothing is read beyond the end, and a graph that
 * loops is never taken for one that does not because it is cut. */
static void damage(uint64_t *random) {
    static const struct graph graph = {8, "x,n", "w", "Gemm x,w>h\nRelu h>r\nTile r,n>y"};
    struct text model = {.count = 0};
    char why[LM_ONNX_WHY_BYTES];
    put_model(&model, &graph);
    for (size_t count = 0; count < model.count; count++) {
        struct text cut = model;
        cut.count = count;
        CHECK_AT("%zu bytes", count);
        CHECK(!is_bounded(&cut, why));
    }
    for (int n = 0; n < 20000; n++) {
        struct text other = model;
        for (int b = 0; b < 3; b++)
            other.bytes[check_random(random) % other.count] = (uint8_t)check_random(random);
        (void)is_bounded(&other, why);
    }
}

int main(void) {
    uint64_t random = check_seed();
    check_watchdog(120, "a graph that is walked");
    check_guard_open(&guard, 1 << 14);
    graphs();
    every_input();
    many_names();
    files();
    named_twice();
    damage(&random);
    check_guard_close(&guard);
    return check_finish("test_onnx_bounds");
}
