/* http_room.h: how much of a slot a request over HTTP needs for its text, for what that holds, and
 * for the text of its reply. I/O thread; nothing is kept.
 */
#ifndef LM_DIALECTS_HTTP_ROOM_H
#define LM_DIALECTS_HTTP_ROOM_H

#include "flow/state.h"
#include "formats/oip_request.h"

/* Bytes of a body, or the most that its chunks may hold. */
size_t lm_http_text_room(const struct lm_io *io, const struct lm_connection *connection);
/* Bytes of the slot for what a compressed body holds: no more than the largest slot has room for,
 * nor than may come uncompressed. */
size_t lm_http_inflated_room(const struct lm_io *io, const struct lm_connection *connection,
                             const struct lm_model *model);
/* Bytes of the slot that the reply needs beyond its tensors. */
size_t lm_http_reply_room(const struct lm_model *model, const struct lm_oip_request *asked);

#endif
