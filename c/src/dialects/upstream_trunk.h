/* upstream_trunk.h: connections of HTTP/2 to upstreams: their entries, the streams that they
 * carry, and their own frames, which go out with the next batch. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_TRUNK_H
#define LM_DIALECTS_UPSTREAM_TRUNK_H

#include "dialects/upstream_http2_state.h"

/* Returns 0 or LUMEN_E_NOMEM. */
int lm_trunks_open(struct lm_io *io);
void lm_trunks_close(struct lm_io *io);

/* ---- the connection ---- */
/* Its link will carry streams, once it is greeted. false: there are as many as there may be. */
bool lm_trunk_begin(struct lm_io *io, struct lm_link *link);
/* It is greeted: what HTTP/2 begins with goes out, and streams may follow. */
void lm_trunk_greet(struct lm_io *io, struct lm_link *link);
/* It takes so many streams at a time: those that were not sent yet go elsewhere. */
void lm_trunk_limit(struct lm_io *io, struct lm_upstream_trunk *trunk, uint32_t streams);
/* No more streams; it ends behind the last one. */
void lm_trunk_close(struct lm_io *io, struct lm_link *link);
/* Its other side has made an error: it is told which, the requests of all streams hear why, and the
 * connection ends. */
void lm_trunk_fail(struct lm_io *io, struct lm_upstream_trunk *trunk, enum lm_http2_error error,
                   const char *why);
/* Its entry in the table of connections is about to be free. It has no streams. */
void lm_trunk_forget(struct lm_io *io, struct lm_link *link);

/* false: there is no room, for its other side does not read. */
bool lm_trunk_put(struct lm_upstream_trunk *trunk, uint8_t type, uint8_t flags, uint32_t stream,
                  const uint8_t *payload, uint32_t bytes);
bool lm_trunk_put_number(struct lm_upstream_trunk *trunk, uint8_t type, uint32_t stream,
                         uint32_t number);
/* Whether a few more frames have room. */
bool lm_trunk_has_room(const struct lm_upstream_trunk *trunk);

/* ---- streams ---- */
/* One more; state DIALING while its trunk is not greeted. NULL: it has as many as it may. */
struct lm_link *lm_trunk_stream(struct lm_io *io, struct lm_link *trunk_link);
/* Its request goes out with the next batch. */
void lm_stream_ask(struct lm_io *io, struct lm_link *link);
/* Nothing comes of it any more. `tells`: its other side does not know that yet. What became of its
 * request is looked at when the kernel is done with the slot (upstream.c). */
void lm_stream_cut(struct lm_io *io, struct lm_link *link, enum lm_link_fault fault, bool tells);
/* Nobody has looked at it: its request may go elsewhere. */
void lm_stream_refuse(struct lm_io *io, struct lm_link *link);
/* Its answer is whole. */
void lm_stream_finish(struct lm_io *io, struct lm_link *link);
/* It has no request, and its other side is done with it: its entry is free. */
void lm_stream_forget(struct lm_io *io, struct lm_link *link);

/* A link of either kind is of no use any more. */
void lm_link_cut(struct lm_io *io, struct lm_link *link, enum lm_link_fault fault);

#endif
