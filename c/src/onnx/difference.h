/* difference.h: how far the outputs of one model are from those of another, for the same inputs.
 * Any thread.
 *
 * Two rows are apart where the largest number of floating point of an output is at another place
 * (the class, of several), or where any other value (a label, a string, a count) is another.
 */
#ifndef LM_ONNX_DIFFERENCE_H
#define LM_ONNX_DIFFERENCE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct lm_difference {
    uint32_t rows;
    uint8_t *apart; /* a byte for each row: 1: it is */
    double largest; /* of two numbers of floating point; infinity: one of them is no number */
};

/* Returns 0 or LUMEN_E_NOMEM. */
int lm_difference_open(struct lm_difference *difference, uint32_t rows);
void lm_difference_close(struct lm_difference *difference);

/* The same output of both, of a dtype (enum lm_ort_dtype); strings as on the wire, each a length
 * (u32) and its bytes. Of two sizes all rows are apart; elements that are not by rows are all
 * rows'. */
void lm_difference_add(struct lm_difference *difference, int dtype, const struct iovec *one,
                       const struct iovec *other);
/* How many rows are apart. */
uint32_t lm_difference_rows(const struct lm_difference *difference);

#endif
