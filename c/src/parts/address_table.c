/* address_table.c: see address_table.h. Entries stay where they are while they count; one that is
 * back at zero may be taken by another address as long as nobody looks past it, so it is marked and
 * taken again by the next that hashes there.
 */
#include "parts/address_table.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct lm_address_entry {
    uint64_t high, low; /* the address, IPv4 as it is mapped into IPv6 */
    uint32_t count;
    bool used; /* ever: a search goes on past it */
};

int lm_address_table_open(struct lm_address_table *table, uint32_t bound, uint32_t connections) {
    *table = (struct lm_address_table){.bound = bound};
    pthread_mutex_init(&table->lock, NULL);
    if (bound == 0) return 0;
    uint32_t size = 4;
    while (size < 2 * connections) size *= 2; /* never more than half full of those that count */
    table->entries = calloc(size, sizeof *table->entries);
    if (!table->entries)
        return lm_error(LUMEN_E_NOMEM, "no memory for a table of %u addresses", size);
    table->mask = size - 1;
    return 0;
}

void lm_address_table_close(struct lm_address_table *table) {
    free(table->entries);
    *table = (struct lm_address_table){0};
}

static void key_of(const struct sockaddr_storage *address, uint64_t *high, uint64_t *low) {
    *high = *low = 0;
    if (address->ss_family == AF_INET) {
        /* As the last eight bytes of ::ffff:a.b.c.d, read as a little-endian word. */
        uint64_t v4 = ((const struct sockaddr_in *)address)->sin_addr.s_addr;
        *low = v4 << 32 | 0xffff0000u;
    } else if (address->ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
        memcpy(high, v6->s6_addr, 8);
        if (IN6_IS_ADDR_V4MAPPED(v6)) memcpy(low, v6->s6_addr + 8, 8);
    }
}

static uint32_t hash(uint64_t high, uint64_t low) {
    uint64_t mixed = (high ^ (low * 0x9e3779b97f4a7c15ull)) * 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(mixed >> 32);
}

static bool add(struct lm_address_table *table, uint64_t high, uint64_t low, uint32_t *entry_out) {
    uint32_t free_entry = LM_NO_ADDRESS;
    uint32_t at = hash(high, low) & table->mask;
    for (uint32_t seen = 0; seen <= table->mask; seen++, at = (at + 1) & table->mask) {
        struct lm_address_entry *entry = &table->entries[at];
        if (entry->used && entry->high == high && entry->low == low) {
            if (entry->count >= table->bound) return false;
            free_entry = at;
            break;
        }
        if (entry->count == 0 && free_entry == LM_NO_ADDRESS) free_entry = at;
        if (!entry->used) break;
    }
    LM_DEBUG_ASSERT(free_entry != LM_NO_ADDRESS); /* there are twice as many as connections */
    if (free_entry == LM_NO_ADDRESS) return false;
    struct lm_address_entry *entry = &table->entries[free_entry];
    *entry = (struct lm_address_entry){high, low, entry->count + 1, true};
    *entry_out = free_entry;
    return true;
}

bool lm_address_table_add(struct lm_address_table *table, const struct sockaddr_storage *address,
                          uint32_t *entry_out) {
    uint64_t high, low;
    *entry_out = LM_NO_ADDRESS;
    if (!table->entries) return true;
    key_of(address, &high, &low);
    pthread_mutex_lock(&table->lock);
    bool added = add(table, high, low, entry_out);
    pthread_mutex_unlock(&table->lock);
    return added;
}

void lm_address_table_remove(struct lm_address_table *table, uint32_t entry) {
    if (entry == LM_NO_ADDRESS || !table->entries) return;
    pthread_mutex_lock(&table->lock);
    LM_ASSERT(table->entries[entry].count > 0);
    table->entries[entry].count--;
    pthread_mutex_unlock(&table->lock);
}
