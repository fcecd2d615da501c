/* upstream_trunk.c: see upstream_trunk.h. */
#include "dialects/upstream_trunk.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "dialects/upstream_link.h"

enum {
    ROOM_LEAST = 512, /* for what a frame that comes may need to say */
    STREAM_IDS_MAX = INT32_MAX - 4 * LM_CARRIED_MAX, /* a new connection begins anew */
    WHY_BYTES_MAX = 200
};

int lm_trunks_open(struct lm_io *io) {
    struct lm_upstream_side *side = io->upstream;
    side->free_trunk = LM_NO_TRUNK;
    const int code = lm_mapping_reserve(&side->trunks_memory, LM_TRUNKS_MAX * sizeof *side->trunks);
    side->trunks = side->trunks_memory.base;
    return code;
}

void lm_trunks_close(struct lm_io *io) {
    lm_mapping_close(&io->upstream->trunks_memory);
}

/* ---- its own frames ---- */

bool lm_trunk_has_room(const struct lm_upstream_trunk *trunk) {
    return sizeof trunk->control - trunk->control_used >= ROOM_LEAST;
}

static void put_bytes(struct lm_upstream_trunk *trunk, const void *bytes, size_t count) {
    memcpy(trunk->control + trunk->control_used, bytes, count);
    trunk->control_used = (uint16_t)(trunk->control_used + count);
}

bool lm_trunk_put(struct lm_upstream_trunk *trunk, uint8_t type, uint8_t flags, uint32_t stream,
                  const uint8_t *payload, uint32_t bytes) {
    uint8_t header[LM_HTTP2_FRAME_BYTES];
    if (sizeof header + bytes > sizeof trunk->control - trunk->control_used) return false;
    lm_http2_write_frame(header, (struct lm_http2_frame){bytes, stream, type, flags});
    put_bytes(trunk, header, sizeof header);
    if (bytes) put_bytes(trunk, payload, bytes);
    return true;
}

bool lm_trunk_put_number(struct lm_upstream_trunk *trunk, uint8_t type, uint32_t stream,
                         uint32_t number) {
    uint8_t payload[4];
    lm_http2_put_u32(payload, number);
    return lm_trunk_put(trunk, type, 0, stream, payload, sizeof payload);
}

/* ---- the connection ---- */

static struct lm_link *link_of(const struct lm_io *io, const struct lm_upstream_trunk *trunk) {
    return &io->upstream->links[trunk->link];
}

static struct lm_upstream_health *health_of(const struct lm_io *io, const struct lm_link *link) {
    return &io->upstream->pools[link->upstream].addresses[link->address];
}

bool lm_trunk_begin(struct lm_io *io, struct lm_link *link) {
    struct lm_upstream_side *side = io->upstream;
    struct lm_upstream_health *health = health_of(io, link);
    uint32_t index = side->free_trunk;
    if (index == LM_NO_TRUNK) {
        if (side->trunks_used == LM_TRUNKS_MAX) return false;
        index = side->trunks_used++;
    } else {
        side->free_trunk = side->trunks[index].next_free;
    }
    struct lm_upstream_trunk *trunk = &side->trunks[index];
    memset(trunk, 0, sizeof *trunk);
    trunk->link = (uint32_t)(link - side->links);
    trunk->last_place = LM_CARRIED_MAX - 1;
    trunk->open_max = health->streams;
    trunk->send_window = trunk->initial_window = LM_HTTP2_WINDOW;
    trunk->frame_max = LM_HTTP2_FRAME_MIN;
    link->trunk = (uint16_t)index;
    link->previous = LM_NO_LINK;
    link->next = health->carrying;
    if (link->next != LM_NO_LINK) side->links[link->next].previous = trunk->link;
    health->carrying = trunk->link;
    lm_link_connection(io, link)->dialect = LM_DIALECT_UPSTREAM_HTTP2;
    return true;
}

void lm_trunk_greet(struct lm_io *io, struct lm_link *link) {
    static const struct lm_http2_setting settings[] = {
        {LM_HTTP2_HEADER_TABLE_SIZE, 0},
        {LM_HTTP2_ENABLE_PUSH, 0},
        {LM_HTTP2_INITIAL_WINDOW_SIZE, LM_UPSTREAM_WINDOW_BYTES},
        {LM_HTTP2_MAX_HEADER_LIST_SIZE, LM_HTTP_HEAD_BYTES_MAX},
    };
    struct lm_upstream_trunk *trunk = lm_trunk_of(io, link);
    uint8_t payload[sizeof settings / sizeof settings[0] * LM_HTTP2_SETTING_BYTES];
    for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++)
        lm_http2_write_setting(payload + s * LM_HTTP2_SETTING_BYTES, settings[s]);
    put_bytes(trunk, LM_HTTP2_PREFACE, LM_HTTP2_PREFACE_BYTES);
    (void)lm_trunk_put(trunk, LM_HTTP2_SETTINGS, 0, 0, payload, sizeof payload);
    (void)lm_trunk_put_number(trunk, LM_HTTP2_WINDOW_UPDATE, 0, LM_TRUNK_WINDOW - LM_HTTP2_WINDOW);
    trunk->is_ready = true;
    trunk->heard_ns = io->now_ns;
    link->state = LM_LINK_CARRYING;
    io->upstream->busy--; /* its streams are busy */
    lm_connection_mark(io, lm_link_connection(io, link));
}

void lm_trunk_close(struct lm_io *io, struct lm_link *link) {
    lm_trunk_of(io, link)->is_closing = true;
    lm_connection_mark(io, lm_link_connection(io, link));
}

void lm_trunk_fail(struct lm_io *io, struct lm_upstream_trunk *trunk, enum lm_http2_error error,
                   const char *why) {
    uint8_t payload[8 + WHY_BYTES_MAX] = {0}; /* no stream of the other side was opened */
    const size_t bytes = strnlen(why, WHY_BYTES_MAX);
    lm_http2_put_u32(payload + 4, error);
    memcpy(payload + 8, why, bytes);
    (void)lm_trunk_put(trunk, LM_HTTP2_GOAWAY, 0, 0, payload, (uint32_t)(8 + bytes));
    for (uint32_t p = lm_trunk_places_next(&trunk->used, 0); p < LM_CARRIED_MAX;
         p = lm_trunk_places_next(&trunk->used, p + 1)) {
        struct lm_link *stream = lm_carried(io, trunk, p);
        if (stream->slot != LM_NO_SLOT) {
            struct lm_exchange *exchange = lm_exchange_of(io, stream->slot);
            snprintf(exchange->event, sizeof exchange->event, "its HTTP/2: %s", why);
        }
        lm_stream_cut(io, stream, LM_FAULT_GARBAGE, false);
    }
    trunk->has_failed = true;
    lm_trunk_close(io, link_of(io, trunk));
}

void lm_trunk_forget(struct lm_io *io, struct lm_link *link) {
    struct lm_upstream_side *side = io->upstream;
    struct lm_upstream_health *health = health_of(io, link);
    struct lm_upstream_trunk *trunk = lm_trunk_of(io, link);
    LM_DEBUG_ASSERT(trunk->open == 0 && !trunk->sends);
    if (health->carrying == trunk->link) health->carrying = link->next;
    if (link->previous != LM_NO_LINK) side->links[link->previous].next = link->next;
    if (link->next != LM_NO_LINK) side->links[link->next].previous = link->previous;
    if (link->state == LM_LINK_CARRYING) side->busy++; /* as any other that is given back */
    trunk->next_free = side->free_trunk;
    side->free_trunk = link->trunk;
    link->trunk = LM_NO_TRUNK;
}

void lm_trunk_limit(struct lm_io *io, struct lm_upstream_trunk *trunk, uint32_t streams) {
    trunk->open_max = streams < LM_CARRIED_MAX ? streams : LM_CARRIED_MAX;
    /* One may be opened with the next connection, which may say something else. */
    health_of(io, link_of(io, trunk))->streams = trunk->open_max ? (uint16_t)trunk->open_max : 1;
    uint32_t over = trunk->open > trunk->open_max ? trunk->open - trunk->open_max : 0;
    for (uint32_t p = lm_trunk_places_next(&trunk->used, 0); over > 0 && p < LM_CARRIED_MAX;
         p = lm_trunk_places_next(&trunk->used, p + 1)) {
        struct lm_link *link = lm_carried(io, trunk, p);
        if (link->stream.id) continue;
        lm_stream_refuse(io, link);
        over--;
    }
}

/* ---- streams ---- */

static uint32_t free_place(const struct lm_upstream_trunk *trunk) {
    uint32_t place = trunk->last_place;
    do {
        place = (place + 1) % LM_CARRIED_MAX;
    } while (lm_trunk_places_have(&trunk->used, place));
    return place;
}

struct lm_link *lm_trunk_stream(struct lm_io *io, struct lm_link *trunk_link) {
    struct lm_upstream_trunk *trunk = lm_trunk_of(io, trunk_link);
    if (trunk->last_stream > STREAM_IDS_MAX) lm_trunk_close(io, trunk_link);
    if (trunk->is_closing || trunk->open >= trunk->open_max) return NULL;
    struct lm_link *link = lm_link_take(io);
    if (!link) return NULL;
    const uint32_t place = free_place(trunk);
    link->connection = trunk_link->connection;
    link->generation = trunk_link->generation;
    link->trunk = trunk_link->trunk;
    link->upstream = trunk_link->upstream;
    link->address = trunk_link->address;
    link->is_used = trunk_link->is_used;
    link->state = trunk->is_ready ? LM_LINK_ASKING : LM_LINK_DIALING;
    link->stream = (struct lm_upstream_stream){.is_stream = true,
                                               .place = (uint8_t)place,
                                               .recv_window = LM_UPSTREAM_WINDOW_BYTES,
                                               .send_window = trunk->initial_window};
    trunk->links[place] = (uint32_t)(link - io->upstream->links);
    trunk->last_place = (uint8_t)place;
    trunk->open++;
    lm_trunk_places_put(&trunk->used, place, true);
    lm_link_hold(io, lm_link_connection(io, trunk_link), true);
    return link;
}

void lm_stream_ask(struct lm_io *io, struct lm_link *link) {
    lm_trunk_places_put(&lm_trunk_of(io, link)->waiting, link->stream.place, true);
    lm_connection_mark(io, lm_link_connection(io, link));
}

void lm_stream_cut(struct lm_io *io, struct lm_link *link, enum lm_link_fault fault, bool tells) {
    struct lm_upstream_trunk *trunk = lm_trunk_of(io, link);
    const uint32_t place = link->stream.place;
    const bool is_known = link->stream.has_ended && link->message.msg_iovlen == 0;
    if (lm_trunk_places_have(&trunk->over, place)) return;
    link->fault = (uint8_t)fault;
    lm_trunk_places_put(&trunk->over, place, true);
    lm_trunk_places_put(&trunk->waiting, place, false);
    if (tells && link->stream.id && !is_known &&
        !lm_trunk_put_number(trunk, LM_HTTP2_RST_STREAM, link->stream.id, LM_HTTP2_CANCEL))
        lm_connection_abort(io, lm_link_connection(io, link)); /* nobody reads there */
    lm_connection_mark(io, lm_link_connection(io, link));
}

void lm_stream_refuse(struct lm_io *io, struct lm_link *link) {
    link->is_used = true; /* as on a connection that was closed before */
    lm_stream_cut(io, link, LM_FAULT_CLOSED, false);
}

void lm_stream_finish(struct lm_io *io, struct lm_link *link) {
    const bool is_sent = link->message.msg_iovlen == 0;
    link->slot = LM_NO_SLOT;
    link->state = LM_LINK_OVER;
    if (link->stream.has_ended || !is_sent) lm_stream_cut(io, link, LM_FAULT_CLOSED, true);
}

void lm_stream_forget(struct lm_io *io, struct lm_link *link) {
    struct lm_upstream_trunk *trunk = lm_trunk_of(io, link);
    const uint32_t place = link->stream.place;
    lm_trunk_places_put(&trunk->used, place, false);
    lm_trunk_places_put(&trunk->waiting, place, false);
    lm_trunk_places_put(&trunk->held, place, false);
    lm_trunk_places_put(&trunk->over, place, false);
    trunk->open--;
    lm_link_give(io, link);
}

void lm_link_cut(struct lm_io *io, struct lm_link *link, enum lm_link_fault fault) {
    if (link->stream.is_stream) {
        lm_stream_cut(io, link, fault, true);
        return;
    }
    link->fault = (uint8_t)fault;
    lm_connection_abort(io, lm_link_connection(io, link));
}
