/* pictures.h: how many pixels the pictures of a request have, for the estimate of its cost: as soon
 * as their files are here. I/O thread only. */
#ifndef LM_FLOW_PICTURES_H
#define LM_FLOW_PICTURES_H

#include "flow/request.h"

/* Sets the pixels, and the encoding by the format. Where the header tells no sides the bytes are a
 * guess: its worker says what is wrong with it. */
void lm_pictures_measure(struct lm_request *request);

#endif
