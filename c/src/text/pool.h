/* pool.h: from the vectors of a text's tokens to the vector of the text. A text has a Run of its
 * own, so every token counts: none is padding. Allocates nothing, holds no state: any thread.
 */
#ifndef LM_TEXT_POOL_H
#define LM_TEXT_POOL_H

#include <stddef.h>
#include <stdint.h>

/* The parts of a pooling (LUMEN_POOLING_*), each a vector of its own. */
uint32_t lm_pool_parts(uint32_t pooling);

/* Writes lm_pool_parts(pooling) * width numbers, the parts one behind the other in the order of
 * their bits. `tokens` are at least 1, each of `width` numbers. */
void lm_pool(uint32_t pooling, const float *vectors, size_t tokens, size_t width, float *out);

/* Divides by the length (L2), unless that is next to nothing. */
void lm_pool_normalise(float *vector, size_t width);

#endif
