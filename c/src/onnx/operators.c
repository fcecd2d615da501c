/* operators.c: see operators.h. Each table is in the order of its names, as strcmp has
 * it.
 */
#include "onnx/operators.h"

#include <string.h>

#define INPUT(index) (1u << (index))
#define PLAIN(operator) {.name = operator}
#define SIZED(operator, inputs) {.name = operator, .sizes = inputs}

/* clang-format off */
/* Of ONNX itself, in all of its versions: an input that a version does not have is not there. */
static const struct lm_onnx_operator core[] = {
    PLAIN("Abs"), PLAIN("Acos"), PLAIN("Acosh"), PLAIN("Add"), SIZED("AffineGrid", INPUT(1)),
    PLAIN("And"), PLAIN("ArgMax"), PLAIN("ArgMin"), PLAIN("Asin"), PLAIN("Asinh"), PLAIN("Atan"),
    PLAIN("Atanh"), PLAIN("AveragePool"), PLAIN("BatchNormalization"),
    {.name = "Bernoulli", .is_random = true}, PLAIN("BitShift"), PLAIN("BitwiseAnd"),
    PLAIN("BitwiseNot"), PLAIN("BitwiseOr"), PLAIN("BitwiseXor"), SIZED("BlackmanWindow", INPUT(0)),
    PLAIN("Cast"), PLAIN("CastLike"), PLAIN("Ceil"), PLAIN("Celu"),
    SIZED("CenterCropPad", INPUT(1)), PLAIN("Clip"), SIZED("Col2Im", INPUT(1) | INPUT(2)),
    PLAIN("Concat"), PLAIN("Constant"), SIZED("ConstantOfShape", INPUT(0)), PLAIN("Conv"),
    PLAIN("ConvInteger"), PLAIN("ConvTranspose"), PLAIN("Cos"), PLAIN("Cosh"), PLAIN("CumSum"),
    SIZED("DFT", INPUT(1) | INPUT(2)), PLAIN("DeformConv"), PLAIN("DepthToSpace"),
    PLAIN("DequantizeLinear"), PLAIN("Det"), PLAIN("Div"), PLAIN("Dropout"),
    PLAIN("DynamicQuantizeLinear"), PLAIN("Einsum"), PLAIN("Elu"), PLAIN("Equal"), PLAIN("Erf"),
    PLAIN("Exp"), SIZED("Expand", INPUT(1)), PLAIN("EyeLike"), PLAIN("Flatten"), PLAIN("Floor"),
    PLAIN("GRU"), PLAIN("Gather"), PLAIN("GatherElements"), PLAIN("GatherND"), PLAIN("Gelu"),
    PLAIN("Gemm"), PLAIN("GlobalAveragePool"), PLAIN("GlobalLpPool"), PLAIN("GlobalMaxPool"),
    PLAIN("Greater"), PLAIN("GreaterOrEqual"), PLAIN("GridSample"), PLAIN("GroupNormalization"),
    SIZED("HammingWindow", INPUT(0)), SIZED("HannWindow", INPUT(0)), PLAIN("HardSigmoid"),
    PLAIN("HardSwish"), PLAIN("Hardmax"), PLAIN("Identity"), PLAIN("InstanceNormalization"),
    PLAIN("IsInf"), PLAIN("IsNaN"), PLAIN("LRN"), PLAIN("LSTM"), PLAIN("LayerNormalization"),
    PLAIN("LeakyRelu"), PLAIN("Less"), PLAIN("LessOrEqual"), PLAIN("Log"), PLAIN("LogSoftmax"),
    PLAIN("LpNormalization"), PLAIN("LpPool"), PLAIN("MatMul"), PLAIN("MatMulInteger"),
    PLAIN("Max"), PLAIN("MaxPool"), SIZED("MaxUnpool", INPUT(2)), PLAIN("Mean"),
    PLAIN("MeanVarianceNormalization"),
    SIZED("MelWeightMatrix", INPUT(0) | INPUT(1) | INPUT(2) | INPUT(3) | INPUT(4)), PLAIN("Min"),
    PLAIN("Mish"), PLAIN("Mod"), PLAIN("Mul"), {.name = "Multinomial", .is_random = true},
    PLAIN("Neg"), PLAIN("NegativeLogLikelihoodLoss"), PLAIN("Not"), SIZED("OneHot", INPUT(1)),
    PLAIN("Or"), PLAIN("PRelu"), SIZED("Pad", INPUT(1) | INPUT(3)), PLAIN("Pow"),
    PLAIN("QLinearConv"), PLAIN("QLinearMatMul"), PLAIN("QuantizeLinear"),
    PLAIN("RMSNormalization"), PLAIN("RNN"), {.name = "RandomNormal", .is_random = true},
    {.name = "RandomNormalLike", .is_random = true}, {.name = "RandomUniform", .is_random = true},
    {.name = "RandomUniformLike", .is_random = true},
    SIZED("Range", INPUT(0) | INPUT(1) | INPUT(2)), PLAIN("Reciprocal"),
    SIZED("ReduceL1", INPUT(1)), SIZED("ReduceL2", INPUT(1)), SIZED("ReduceLogSum", INPUT(1)),
    SIZED("ReduceLogSumExp", INPUT(1)), SIZED("ReduceMax", INPUT(1)), SIZED("ReduceMean", INPUT(1)),
    SIZED("ReduceMin", INPUT(1)), SIZED("ReduceProd", INPUT(1)), SIZED("ReduceSum", INPUT(1)),
    SIZED("ReduceSumSquare", INPUT(1)), PLAIN("Relu"), SIZED("Reshape", INPUT(1)),
    SIZED("Resize", INPUT(1) | INPUT(2) | INPUT(3)), PLAIN("ReverseSequence"), PLAIN("Round"),
    SIZED("STFT", INPUT(1) | INPUT(3)), PLAIN("Scatter"), PLAIN("ScatterElements"),
    PLAIN("ScatterND"), PLAIN("Selu"), {.name = "Shape", .is_constant = true}, PLAIN("Shrink"),
    PLAIN("Sigmoid"), PLAIN("Sign"), PLAIN("Sin"), PLAIN("Sinh"),
    {.name = "Size", .is_constant = true},
    SIZED("Slice", INPUT(1) | INPUT(2) | INPUT(3) | INPUT(4)), PLAIN("Softmax"),
    PLAIN("SoftmaxCrossEntropyLoss"), PLAIN("Softplus"), PLAIN("Softsign"), PLAIN("SpaceToDepth"),
    SIZED("Split", INPUT(1)), PLAIN("Sqrt"), SIZED("Squeeze", INPUT(1)), PLAIN("Sub"), PLAIN("Sum"),
    PLAIN("Swish"), PLAIN("Tan"), PLAIN("Tanh"), PLAIN("TfIdfVectorizer"), PLAIN("ThresholdedRelu"),
    SIZED("Tile", INPUT(1) | INPUT(2)), SIZED("TopK", INPUT(1)), PLAIN("Transpose"), PLAIN("Trilu"),
    SIZED("Unsqueeze", INPUT(1)), SIZED("Upsample", INPUT(1)), PLAIN("Where"), PLAIN("Xor"),
};

static const struct lm_onnx_operator machine_learning[] = {
    PLAIN("ArrayFeatureExtractor"), PLAIN("Binarizer"), PLAIN("CategoryMapper"),
    PLAIN("FeatureVectorizer"), PLAIN("Imputer"), PLAIN("LabelEncoder"), PLAIN("LinearClassifier"),
    PLAIN("LinearRegressor"), PLAIN("Normalizer"), PLAIN("OneHotEncoder"), PLAIN("SVMClassifier"),
    PLAIN("SVMRegressor"), PLAIN("Scaler"), PLAIN("TreeEnsemble"), PLAIN("TreeEnsembleClassifier"),
    PLAIN("TreeEnsembleRegressor"),
};

/* Of ONNX Runtime: what quantizers and exporters write. */
static const struct lm_onnx_operator microsoft[] = {
    PLAIN("Attention"), PLAIN("BiasGelu"), PLAIN("DequantizeLinear"), PLAIN("DynamicQuantizeLSTM"),
    PLAIN("DynamicQuantizeMatMul"), PLAIN("EmbedLayerNormalization"), PLAIN("FastGelu"),
    PLAIN("FusedConv"), PLAIN("FusedGemm"), PLAIN("FusedMatMul"), PLAIN("Gelu"),
    PLAIN("MatMulInteger16"), PLAIN("MatMulIntegerToFloat"), PLAIN("MatMulNBits"),
    PLAIN("MultiHeadAttention"), PLAIN("QAttention"), PLAIN("QEmbedLayerNormalization"),
    PLAIN("QGemm"), PLAIN("QLinearAdd"), PLAIN("QLinearAveragePool"), PLAIN("QLinearConcat"),
    PLAIN("QLinearConv"), PLAIN("QLinearGlobalAveragePool"), PLAIN("QLinearLeakyRelu"),
    PLAIN("QLinearMul"), SIZED("QLinearReduceMean", INPUT(1)), PLAIN("QLinearSigmoid"),
    PLAIN("QLinearSoftmax"), PLAIN("QLinearWhere"), PLAIN("QuantizeLinear"), PLAIN("QuickGelu"),
    PLAIN("SkipLayerNormalization"), PLAIN("TransposeMatMul"),
};
/* clang-format on */

static const struct {
    const char *name;
    const struct lm_onnx_operator *operators;
    size_t count;
} domains[] = {
    {"", core, sizeof core / sizeof core[0]},
    {"ai.onnx", core, sizeof core / sizeof core[0]},
    {"ai.onnx.ml", machine_learning, sizeof machine_learning / sizeof machine_learning[0]},
    {"com.microsoft", microsoft, sizeof microsoft / sizeof microsoft[0]},
};

/* As strcmp does; the bytes are no string. */
static int compare(struct lm_bytes bytes, const char *name) {
    size_t count = lm_bytes_count(bytes), length = strlen(name);
    size_t both = count < length ? count : length;
    int order = both ? memcmp(bytes.at, name, both) : 0; /* none: `at` may be null */
    return order ? order : (count > length) - (count < length);
}

const struct lm_onnx_operator *lm_onnx_operator_find(struct lm_bytes domain, struct lm_bytes name) {
    for (size_t d = 0; d < sizeof domains / sizeof domains[0]; d++) {
        size_t from = 0, to = domains[d].count;
        if (compare(domain, domains[d].name) != 0) continue;
        while (from < to) {
            size_t middle = (from + to) / 2;
            int order = compare(name, domains[d].operators[middle].name);
            if (order == 0) return &domains[d].operators[middle];
            if (order < 0) to = middle;
            if (order > 0) from = middle + 1;
        }
    }
    return NULL;
}
