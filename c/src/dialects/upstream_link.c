/* upstream_link.c: see upstream_link.h. */
#include "dialects/upstream_link.h"

struct lm_link *lm_link_take(struct lm_io *io) {
    struct lm_upstream_side *side = io->upstream;
    uint32_t index = side->free_link;
    if (index == LM_NO_LINK) {
        if (side->links_used == side->links_max) return NULL;
        index = side->links_used++;
    } else {
        side->free_link = side->links[index].next;
    }
    struct lm_link *link = &side->links[index];
    *link = (struct lm_link){.slot = LM_NO_SLOT,
                             .trunk = LM_NO_TRUNK,
                             .previous = LM_NO_LINK,
                             .next = LM_NO_LINK,
                             .moved_ns = io->now_ns};
    side->busy++;
    lm_upstream_wake(io);
    return link;
}

void lm_link_give(struct lm_io *io, struct lm_link *link) {
    struct lm_upstream_side *side = io->upstream;
    link->state = LM_LINK_FREE;
    link->next = side->free_link;
    side->free_link = (uint32_t)(link - side->links);
    side->busy--;
    lm_upstream_wake(io); /* another one may have to be kept in its place */
}
