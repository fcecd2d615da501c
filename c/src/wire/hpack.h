/* hpack.h: the header blocks of HTTP/2 requests, bytes to names and values (RFC 7541).
 *
 * A connection has one struct lm_hpack, and one thread that decodes its blocks in their order: each
 * may change the dynamic table. Nothing is allocated.
 */
#ifndef LM_WIRE_HPACK_H
#define LM_WIRE_HPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "wire/http_parser.h"

enum {
    LM_HPACK_TABLE_BYTES = 4096, /* until a client has acknowledged another size */
    LM_HPACK_OVERHEAD = 32,      /* that an entry counts beside its bytes */
    LM_HPACK_ENTRIES = LM_HPACK_TABLE_BYTES / LM_HPACK_OVERHEAD
};

/* The dynamic table: the last fields that the client said to keep. Zeroes: an empty one. */
struct lm_hpack_table {
    struct {
        uint16_t at; /* of its name in `bytes`, which is a ring; its value comes next */
        uint16_t name_bytes, value_bytes;
    } entries[LM_HPACK_ENTRIES]; /* a ring too */
    uint16_t next;               /* where the next entry goes */
    uint16_t count;
    uint16_t used; /* of them all, as RFC 7541 counts */
    uint16_t at;   /* where the next bytes go */
    char bytes[LM_HPACK_TABLE_BYTES];
};

struct lm_hpack {
    struct lm_hpack_table *table; /* NULL: of no bytes */
    uint16_t size;                /* of the table, as the client chose it */
    uint16_t limit;               /* of what it may choose: HEADER_TABLE_SIZE as it knows it */
};

struct lm_hpack_field {
    struct lm_slice name, value;
};

/* The fields of a block. The slices point into it, into the block or to constants. */
struct lm_hpack_fields {
    uint32_t count;
    bool
        too_large; /* more fields or bytes than a head may have: those from there on are left out */
    size_t bytes;  /* of all fields, as RFC 7541 counts */
    size_t used;   /* of `room` */
    struct lm_hpack_field list[LM_HTTP_HEADERS_MAX];
    char room[LM_HTTP_HEAD_BYTES_MAX];
    char beside[2][LM_HPACK_TABLE_BYTES]; /* a name and a value that have no place in `room` */
};

/* false: the block is malformed, and the connection cannot go on (COMPRESSION_ERROR); `why` then
 * holds a sentence. */
bool lm_hpack_decode(struct lm_hpack *hpack, const uint8_t *block, size_t bytes,
                     struct lm_hpack_fields *out, char *why, size_t why_bytes);

/* The client has acknowledged that it may use no table. Returns the table, which may be given to
 * another connection. */
struct lm_hpack_table *lm_hpack_give_table(struct lm_hpack *hpack);

#endif
