/* rows_reply.h: the JSON that answers a request of rows (rows_request.h): {"predictions": [...]}
 * with an element for each row, or {"outputs": ...} with whole outputs. Of several outputs it is an
 * object by their names. Composed by a worker in memory that the caller gives. No state, no
 * allocation.
 */
#ifndef LM_FORMATS_ROWS_REPLY_H
#define LM_FORMATS_ROWS_REPLY_H

#include "formats/oip_reply.h"

/* Upper bound of what lm_rows_write needs, unless outputs have arrays without elements. The
 * outputs' `data` is not looked at. False when it overflows. */
bool lm_rows_reply_bytes_max(const struct lm_model *model, const struct lm_oip_output *outputs,
                             size_t *bytes_out);

/* Composes the reply: `rows` of the request, or 0 for whole outputs; `field` is what the reply's
 * one field is called. Returns as lm_oip_write. */
enum lm_status lm_rows_write(const struct lm_model *model, const struct lm_oip_output *outputs,
                             uint32_t rows, const char *field, char *room, size_t room_bytes,
                             size_t *bytes_out, char *why, size_t why_bytes);

#endif
