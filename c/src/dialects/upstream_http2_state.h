/* upstream_http2_state.h: what an I/O thread knows of its connections of HTTP/2 to upstreams, each
 * of which carries streams. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_HTTP2_STATE_H
#define LM_DIALECTS_UPSTREAM_HTTP2_STATE_H

#include "dialects/upstream_state.h"
#include "wire/http2_reader.h"

enum {
    LM_TRUNKS_MAX = 1024,   /* of an I/O thread */
    LM_CARRIED_MAX = 128,   /* streams, at most */
    LM_CARRIED_FIRST = 100, /* before the other side has said how many it takes */
    LM_CARRIED_WORDS = LM_CARRIED_MAX / 64,
    LM_TRUNK_CONTROL_BYTES = 2048,
    LM_TRUNK_FRAMES = 64, /* in a batch */
    LM_TRUNK_PARTS = 4 * LM_TRUNK_FRAMES,
    LM_TRUNK_WINDOW = 1 << 24 /* of the connection: its streams' windows are what is kept */
};

/* A bit for each place of a stream. */
struct lm_trunk_places {
    uint64_t words[LM_CARRIED_WORDS];
};

struct lm_upstream_trunk {
    uint32_t link; /* the connection's */
    uint16_t next_free;
    bool is_ready;        /* it is greeted: frames may go */
    bool is_closing;      /* no more streams */
    bool has_failed;      /* its other side made an error: nothing of it is read any more */
    bool sends;           /* the ring sends the batch */
    uint8_t last_place;   /* of the stream that was opened last */
    uint8_t turn;         /* whose request is looked at first */
    uint32_t last_stream; /* the highest that was opened */
    uint32_t open, open_max;
    uint32_t links[LM_CARRIED_MAX]; /* of its streams, by their places */
    struct lm_trunk_places used;
    struct lm_trunk_places waiting; /* something of their requests may be sent */
    struct lm_trunk_places held;    /* something that has come waits for their clients */
    struct lm_trunk_places over;    /* those that end once the kernel is done with them */
    struct lm_trunk_places sent;    /* in the batch that the ring sends */
    int64_t send_window;
    uint32_t owed; /* bytes of DATA, of all streams, that the other side may send anew */
    uint32_t initial_window, frame_max; /* its settings */
    uint32_t block_used; /* bytes of a header block that comes in pieces, in its stream's window */
    uint8_t skipped;     /* bytes before the block, still to come */
    uint64_t heard_ns;   /* when its other side last said anything */
    uint64_t second_ns;  /* since when: */
    uint32_t asked;      /* frames of requests, for: */
    uint32_t noise;      /* frames that bring no answer on */
    struct lm_http2_reader reader;
    uint16_t control_used, heads_used, part_count;
    struct msghdr message; /* the batch */
    struct iovec parts[LM_TRUNK_PARTS];
    uint8_t control[LM_TRUNK_CONTROL_BYTES]; /* its own frames, which wait to be sent */
    uint8_t sending[LM_TRUNK_CONTROL_BYTES];
    uint8_t heads[LM_TRUNK_FRAMES * LM_HTTP2_FRAME_BYTES];
};

static inline void lm_trunk_places_put(struct lm_trunk_places *places, uint32_t place,
                                       bool is_there) {
    const uint64_t bit = 1ull << place % 64;
    uint64_t *word = &places->words[place / 64];
    *word = is_there ? *word | bit : *word & ~bit;
}
static inline bool lm_trunk_places_have(const struct lm_trunk_places *places, uint32_t place) {
    return places->words[place / 64] >> place % 64 & 1;
}
/* The first from this one on; LM_CARRIED_MAX: there is none. */
static inline uint32_t lm_trunk_places_next(const struct lm_trunk_places *places, uint32_t place) {
    for (; place < LM_CARRIED_MAX; place = (place | 63) + 1) {
        const uint64_t here = places->words[place / 64] >> place % 64;
        if (here) return place + (uint32_t)__builtin_ctzll(here);
    }
    return LM_CARRIED_MAX;
}

static inline struct lm_upstream_trunk *lm_trunk_of(const struct lm_io *io,
                                                    const struct lm_link *link) {
    return link->trunk == LM_NO_TRUNK ? NULL : &io->upstream->trunks[link->trunk];
}
static inline struct lm_link *lm_carried(const struct lm_io *io,
                                         const struct lm_upstream_trunk *trunk, uint32_t place) {
    return &io->upstream->links[trunk->links[place]];
}
/* The stream of this id; NULL: it is over, or never was. */
static inline struct lm_link *lm_carried_find(const struct lm_io *io,
                                              const struct lm_upstream_trunk *trunk, uint32_t id) {
    const uint32_t place = id / 2 % LM_CARRIED_MAX;
    if (!lm_trunk_places_have(&trunk->used, place)) return NULL;
    struct lm_link *link = lm_carried(io, trunk, place);
    return id % 2 && link->stream.id == id ? link : NULL;
}

#endif
