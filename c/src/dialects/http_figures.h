/* http_figures.h: GET /figures: what the page at / draws its charts from: each model's counts and
 * its latency histogram since the start, as JSON. A reader subtracts two of them. Written anew for
 * each request into the I/O thread's own memory; no worker is asked.
 */
#ifndef LM_DIALECTS_HTTP_FIGURES_H
#define LM_DIALECTS_HTTP_FIGURES_H

#include "flow/state.h"

size_t lm_http_figures_bytes_max(uint32_t model_count);
/* Returns the text's bytes, fewer than lm_http_figures_bytes_max. */
size_t lm_http_figures_write(const struct lm_io *io, char *text, size_t room);

#endif
