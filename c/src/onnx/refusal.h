/* refusal.h: the sentence for a model that cannot be served. Control thread, at start. */
#ifndef LM_ONNX_REFUSAL_H
#define LM_ONNX_REFUSAL_H

#include <stddef.h>

/* Makes the reason that the last error holds readable: without the path and what is only of use to
 * the authors of ONNX Runtime, with a cure where one is known. Where the file itself is no ONNX
 * model, that is the reason. The result is terminated and fits `bytes`. */
void lm_model_refusal(const char *path, char *reason, size_t bytes);

/* Removes "FILE.cc:12 FUNCTION " of ONNX Runtime's sources from a message; in place. */
void lm_refusal_trim(char *text);

#endif
