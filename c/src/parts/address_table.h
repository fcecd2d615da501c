/* address_table.h: how many connections are open from each address. One per I/O thread, which alone
 * uses it. Allocates at open only; without a bound it does nothing at all.
 */
#ifndef LM_PARTS_ADDRESS_TABLE_H
#define LM_PARTS_ADDRESS_TABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { LM_NO_ADDRESS = UINT32_MAX };

struct lm_address_entry;

struct lm_address_table {
    pthread_mutex_t lock;             /* taken for each connection that comes or goes */
    struct lm_address_entry *entries; /* open addressing; NULL: nobody is counted */
    uint32_t mask;
    uint32_t bound; /* connections of one address */
};

/* `bound` 0: none. `connections`: the most there are at a time. Returns 0 or LUMEN_E_NOMEM. */
int lm_address_table_open(struct lm_address_table *table, uint32_t bound, uint32_t connections);
void lm_address_table_close(struct lm_address_table *table);
/* Counts one more from this address. IPv6 addresses count by their first 64 bits, which one host
 * may own; addresses of no network by themselves. false: it has its bound already. */
bool lm_address_table_add(struct lm_address_table *table, const struct sockaddr_storage *address,
                          uint32_t *entry_out);
/* Gives back what add counted; LM_NO_ADDRESS is allowed. */
void lm_address_table_remove(struct lm_address_table *table, uint32_t entry);

#endif
