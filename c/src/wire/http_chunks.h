/* http_chunks.h: a chunked request body (RFC 9112, section 7.1, read strictly), piece by piece.
 *
 * The data is pointed at, never copied. Chunk extensions are skipped; trailers are checked as
 * headers are and thrown away. Runs on I/O threads; no memory, no socket.
 */
#ifndef LM_WIRE_HTTP_CHUNKS_H
#define LM_WIRE_HTTP_CHUNKS_H

#include "wire/http_parser.h"

/* All zero at the start of a body. Small: a connection has room for one. */
struct lm_http_chunks {
    uint64_t left;        /* of the chunk's data; its size so far while that is being read */
    uint32_t chunk_count; /* those with data */
    uint16_t extension_bytes;
    uint16_t trailer_bytes;
    uint8_t state;
    uint8_t digits;      /* of a size; stops at LM_HTTP_CHUNK_DIGITS_MAX */
    uint8_t name_bytes;  /* of a trailer's name; stops at 255 */
    uint8_t other_names; /* bit n: it is not the n-th of those that are refused */
};

enum { LM_HTTP_CHUNKS_MORE, LM_HTTP_CHUNKS_DATA, LM_HTTP_CHUNKS_DONE };

/* Reads from `count` bytes; used_out says how many, and the next call begins with the one after.
 *
 * MORE: all of them, and the body goes on.
 * DATA: data_out is some of the body, within `bytes`. Call again, with what is left.
 * DONE: the body has ended; what follows is the next request. Said again by every later call.
 * < 0:  -400, the status to answer before closing, with the reason in `why`: the bad byte is the
 *       one after those used. Said again by every later call.
 *
 * How much data is too much is for the caller to say, piece by piece. */
int lm_http_chunks_feed(struct lm_http_chunks *chunks, const char *bytes, size_t count,
                        size_t *used_out, struct lm_slice *data_out, char *why, size_t why_bytes);

#endif
