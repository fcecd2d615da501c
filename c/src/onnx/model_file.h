/* model_file.h: what a file is that was given as a model, told from its bytes. Used at start, for
 * the sentence of a refusal; never on a request's path. The bytes are not trusted. Control thread.
 */
#ifndef LM_ONNX_MODEL_FILE_H
#define LM_ONNX_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names the kind of a file that is no ONNX model, and the cure; NULL: the kind is not known. Meant
 * for a file that ONNX Runtime has refused. */
const char *lm_model_file_problem(const uint8_t *bytes, size_t count);

/* True when the ONNX model declares this input without any shape, so that even its number of
 * dimensions is free. ONNX Runtime reports such an input like one of no dimensions. */
bool lm_model_file_hides_shape(const uint8_t *bytes, size_t count, const char *input);

#endif
