/* http_code.h: HTTP's status codes, and how a refusal is said: clients of OpenAI, of Text
 * Embeddings Inference and of Cohere look for codes and fields of their own, on their routes (enum
 * lm_http_route). Any thread.
 */
#ifndef LM_DIALECTS_HTTP_CODE_H
#define LM_DIALECTS_HTTP_CODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* `overloaded`: enum LUMEN_OVERLOAD_503 or _429, what lack of room and of time is said with. */
uint32_t lm_http_code(uint8_t route, enum lm_status status, uint32_t overloaded);
const char *lm_http_reason(uint32_t code);

/* Headers by which the route's clients decide whether to ask again, each with its line end. */
const char *lm_http_retry_lines(uint8_t route, uint32_t code);
/* The most bytes that lm_http_error_body adds to its sentence. */
enum { LM_HTTP_ERROR_BYTES = 128 };
/* Writes the JSON of a refusal; a sentence that does not fit is cut. Returns its bytes. */
size_t lm_http_error_body(uint8_t route, uint32_t code, const char *why, char *out, size_t room);

#endif
