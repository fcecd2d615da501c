/* oip_shapes.h: the shape of an input as JSON has it: compared with the model's, and the source of
 * a request's sizes. C++, for oip_request.cc and rows_request.cc alone. No state: any thread.
 */
#ifndef LM_FORMATS_OIP_SHAPES_H
#define LM_FORMATS_OIP_SHAPES_H

#include "formats/oip_json.h"

namespace lm_oip {

enum { LM_OIP_SHAPE_BYTES = 24 * (LM_RANK_MAX + 1) };

/* "[1,2]", with "..." at its end where there is more. */
void show_shape(const int64_t *dims, uint32_t rank, bool more, char text[LM_OIP_SHAPE_BYTES]);

/* An input as clients see it. */
inline const struct lm_tensor *input_of(const struct lm_model *model, uint32_t input) {
    return lm_tensor_of_client(&model->inputs[input]);
}

/* The image input as a tensor of files, one for each row: [N] or [N,1], which has one file in a
 * dimension of its own. */
inline struct lm_tensor files_of(const struct lm_model *model, uint32_t rank) {
    struct lm_tensor tensor = model->inputs[0];
    tensor.dtype = ORT_STRING;
    tensor.element_bytes = tensor.row_bytes = sizeof(uint32_t);
    tensor.rank = rank;
    tensor.dims[1] = 1;
    tensor.free[1] = 0;
    return tensor;
}

/* Takes the rows and the sizes of free dimensions over, which must agree with `sizes` where an
 * input before has said them (0: none has). false: refused, with the sentence. */
bool read_shape(const complaint &c, const struct lm_model *model, const struct lm_tensor *tensor,
                const element &from, struct lm_sizes *sizes);
/* The same of a shape that is known. */
bool take_shape(const complaint &c, const struct lm_model *model, const struct lm_tensor *tensor,
                const int64_t *dims, uint32_t rank, struct lm_sizes *sizes);

} // namespace lm_oip

#endif
