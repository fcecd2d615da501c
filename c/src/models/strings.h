/* strings.h: strings as a request brings them: a length (u32, little-endian), then so many bytes.
 * They come from a client, so every length is checked before anything is read behind it. No state,
 * no allocation. Any thread. */
#ifndef LM_MODELS_STRINGS_H
#define LM_MODELS_STRINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/layout.h"
#include "models/model.h"

/* Moves `at` behind `count` strings of input `name`. Returns false, with a sentence, where they do
 * not end before `end` or one is too long. */
bool lm_strings_walk(const char *name, const uint8_t **at, const uint8_t *end, size_t count,
                     char *why, size_t why_bytes);

/* Checks all strings of a request whose body is whole, and finds them first where the body lies in
 * `raw`, input by input: then numbers are copied to their place. Returns false with a sentence. */
bool lm_strings_check(const struct lm_model *model, const struct lm_sizes *sizes,
                      struct lm_layout *layout, char *why, size_t why_bytes);

#endif
