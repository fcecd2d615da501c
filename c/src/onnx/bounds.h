/* bounds.h: whether the time of a Run follows from the shapes of a request alone. An I/O
 * thread runs such a model itself; the workers run any other, since one small request could keep
 * the only thread that answers for as long as a value in it says.
 *
 * The time is bounded if every operator is known (onnx/operators.h), and no value that decides how
 * large a tensor is, anywhere in the graph, comes from an input of the graph: all such values
 * follow from constants and from the shapes of other tensors. Control thread, when a model is
 * opened; the bytes are not trusted.
 */
#ifndef LM_ONNX_BOUNDS_H
#define LM_ONNX_BOUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LM_ONNX_WHY_BYTES = 160 };

/* Of the bytes of an ONNX model. When false, `why` says what may take any time: letters, digits and
 * spaces, whatever the file holds. Unknown forms of a file are not bounded. */
bool lm_onnx_is_bounded(const uint8_t *bytes, size_t count, char why[LM_ONNX_WHY_BYTES]);

#endif
