/* memory.c: what a load may see: C11's rules as an operational machine, and a race detector.
 *
 * Each atomic word keeps the history of its values in modification order. A thread has a view: per
 * word, the oldest entry it may still read. A release store attaches the storing thread's view, an
 * acquire load that reads it takes that over; a read-modify-write reads the newest entry and hands
 * on the view of what it read (a release sequence). A seq_cst load reads nothing older than the
 * last seq_cst store. Plain accesses are checked by vector clocks: a pair that nothing orders is a
 * race.
 *
 * This covers what store buffers do, in order (TSO) or not (PSO), and stale reads beyond. Left out:
 * a store that enters the modification order before one that was executed earlier, loads that are
 * executed before an earlier load's value is known to be used (load buffering), compare-and-swap
 * that fails for no reason.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "machine_inner.h"

struct message {
    uint64_t value;
    struct machine_knowledge known;
};

struct location {
    const void *address;
    uint32_t count;
    uint32_t sc_floor; /* the last seq_cst store */
    struct message messages[MESSAGES_MAX];
};

enum { GRANULES = 4096 };

struct granule {
    uintptr_t key;
    uint32_t run;
    uint32_t writer; /* thread + 1; 0: written before the threads began */
    uint32_t write_at;
    struct machine_clock reads;
};

static struct location locations[LOCATIONS_MAX];
static uint32_t location_count;
static struct granule granules[GRANULES];
static uint32_t run_number;
struct machine_knowledge machine_known[MACHINE_THREADS_MAX];

void machine_memory_reset(void) {
    location_count = 0;
    run_number++;
    memset(machine_known, 0, sizeof machine_known);
    for (uint32_t t = 0; t < MACHINE_THREADS_MAX; t++) machine_known[t].clock.at[t] = 1;
}

void machine_join(struct machine_knowledge *into, const struct machine_knowledge *from) {
    for (uint32_t t = 0; t < MACHINE_THREADS_MAX; t++) {
        if (from->clock.at[t] > into->clock.at[t]) into->clock.at[t] = from->clock.at[t];
    }
    for (uint32_t l = 0; l < location_count; l++) {
        if (from->view.floor[l] > into->view.floor[l]) into->view.floor[l] = from->view.floor[l];
    }
}

/* ---- plain memory ---- */

static uint64_t plain_load(const void *address, uint32_t bytes) {
    if (bytes == 8) return *(const uint64_t *)address;
    if (bytes == 4) return *(const uint32_t *)address;
    return *(const uint8_t *)address;
}

static void plain_store(void *address, uint32_t bytes, uint64_t value) {
    if (bytes == 8)
        *(uint64_t *)address = value;
    else if (bytes == 4)
        *(uint32_t *)address = (uint32_t)value;
    else
        *(uint8_t *)address = (uint8_t)value;
}

static struct granule *granule_at(uintptr_t key) {
    uint32_t at = (uint32_t)(key * 0x9e3779b1u) % GRANULES;
    while (granules[at].run == run_number && granules[at].key != key) at = (at + 1) % GRANULES;
    if (granules[at].run != run_number) {
        granules[at] = (struct granule){.key = key, .run = run_number};
    }
    return &granules[at];
}

static void plain_access(const void *address, uint32_t bytes, bool writes, const void *from) {
    if (!machine_running() || machine_on_stack(address)) return;
    uint32_t self = machine_self();
    const struct machine_clock *clock = &machine_known[self].clock;
    uintptr_t first = (uintptr_t)address / 4, last = ((uintptr_t)address + bytes - 1) / 4;
    for (uintptr_t key = first; key <= last; key++) {
        struct granule *granule = granule_at(key);
        bool race = granule->writer && granule->write_at > clock->at[granule->writer - 1];
        for (uint32_t t = 0; writes && t < MACHINE_THREADS_MAX; t++) {
            race |= t != self && granule->reads.at[t] > clock->at[t];
        }
        machine_trace("plain %s %p+%u pc %p", writes ? "write" : "read", address, bytes, from);
        if (race) {
            machine_fail("data race: thread %u %s %p (pc %p) unordered with another's access", self,
                         writes ? "writes" : "reads", address, from);
        }
        if (writes) {
            granule->writer = self + 1;
            granule->write_at = clock->at[self];
        } else {
            granule->reads.at[self] = clock->at[self];
        }
    }
}

void machine_plain_read(const void *address, uint32_t bytes) {
    plain_access(address, bytes, false, __builtin_return_address(0));
}

void machine_plain_write(const void *address, uint32_t bytes) {
    plain_access(address, bytes, true, __builtin_return_address(0));
}

/* ---- atomic memory ---- */

static bool acquires(int order) {
    return order == memory_order_acquire || order == memory_order_acq_rel ||
           order == memory_order_seq_cst || order == memory_order_consume;
}

static bool releases(int order) {
    return order == memory_order_release || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static uint32_t location_of(const void *address, uint32_t bytes) {
    for (uint32_t l = 0; l < location_count; l++) {
        if (locations[l].address == address) return l;
    }
    if (location_count == LOCATIONS_MAX) machine_fail("LOCATIONS_MAX is too small");
    struct location *location = &locations[location_count];
    location->address = address;
    location->count = 1;
    location->sc_floor = 0;
    memset(&location->messages[0], 0, sizeof location->messages[0]);
    location->messages[0].value = plain_load(address, bytes);
    return location_count++;
}

uint64_t machine_newest(const void *address, uint32_t bytes) {
    return plain_load(address, bytes); /* stores are written through */
}

static const char *order_name(int order) {
    static const char *const names[] = {"relaxed", "consume", "acquire",
                                        "release", "acq_rel", "seq_cst"};
    return names[order];
}

/* Takes note that the calling thread reads message `at`. */
static uint64_t take_message(uint32_t l, uint32_t at, int order) {
    struct machine_knowledge *self = &machine_known[machine_self()];
    const struct message *message = &locations[l].messages[at];
    self->view.floor[l] = (uint16_t)at;
    if (acquires(order)) machine_join(self, &message->known);
    return message->value;
}

/* Appends a value; `read` is the message a read-modify-write hands on, or NULL. */
static void put_message(uint32_t l, uint32_t bytes, uint64_t value, int order,
                        const struct message *read) {
    struct machine_knowledge *self = &machine_known[machine_self()];
    struct location *location = &locations[l];
    if (location->count == MESSAGES_MAX) machine_fail("MESSAGES_MAX is too small");
    uint32_t at = location->count++;
    struct message *message = &location->messages[at];
    message->value = value;
    self->view.floor[l] = (uint16_t)at;
    if (read)
        message->known = read->known;
    else
        memset(&message->known, 0, sizeof message->known);
    if (releases(order)) machine_join(&message->known, self);
    message->known.view.floor[l] = (uint16_t)at;
    if (order == memory_order_seq_cst) location->sc_floor = at;
    self->clock.at[machine_self()]++;
    plain_store((void *)(uintptr_t)location->address, bytes, value);
}

/* Which message a load reads. `skip`: a value a failing compare-and-swap cannot read if stale. */
static uint32_t pick(uint32_t l, int order, const uint64_t *skip) {
    const struct location *location = &locations[l];
    uint32_t newest = location->count - 1;
    uint32_t floor = machine_known[machine_self()].view.floor[l];
    if (order == memory_order_seq_cst && location->sc_floor > floor) floor = location->sc_floor;
    if (floor == newest || !machine_stale_allowed()) return newest;
    uint32_t candidates[MESSAGES_MAX], count = 0;
    for (uint32_t at = newest + 1; at-- > floor;) {
        if (at != newest && skip && location->messages[at].value == *skip) continue;
        candidates[count++] = at;
    }
    uint32_t chosen = machine_choose(count);
    if (chosen > 0) machine_stale_taken();
    return candidates[chosen];
}

static uint64_t atomic_load_at(const void *address, uint32_t bytes, int order, const void *from) {
    if (!machine_running()) return plain_load(address, bytes);
    machine_point("load");
    uint32_t l = location_of(address, bytes);
    uint32_t newest = locations[l].count - 1, at = pick(l, order, NULL);
    uint64_t value = take_message(l, at, order);
    machine_trace("load %s #%u -> %#lx%s pc %p", order_name(order), l, (unsigned long)value,
                  at == newest ? "" : " (stale)", from);
    return value;
}

static void atomic_store_at(void *address, uint32_t bytes, uint64_t value, int order,
                            const void *from) {
    if (!machine_running()) {
        plain_store(address, bytes, value);
        return;
    }
    machine_point("store");
    uint32_t l = location_of(address, bytes);
    machine_trace("store %s #%u <- %#lx pc %p", order_name(order), l, (unsigned long)value, from);
    put_message(l, bytes, value, order, NULL);
}

enum rmw { RMW_EXCHANGE, RMW_ADD, RMW_SUB, RMW_AND, RMW_OR };

static uint64_t rmw_result(enum rmw what, uint64_t old, uint64_t operand) {
    switch (what) {
    case RMW_ADD: return old + operand;
    case RMW_SUB: return old - operand;
    case RMW_AND: return old & operand;
    case RMW_OR: return old | operand;
    default: return operand;
    }
}

static uint64_t atomic_rmw_at(void *address, uint32_t bytes, enum rmw what, uint64_t operand,
                              int order, const void *from) {
    if (!machine_running()) {
        uint64_t old = plain_load(address, bytes);
        plain_store(address, bytes, rmw_result(what, old, operand));
        return old;
    }
    machine_point("rmw");
    uint32_t l = location_of(address, bytes), newest = locations[l].count - 1;
    uint64_t old = take_message(l, newest, order);
    uint64_t value = rmw_result(what, old, operand);
    machine_trace("rmw %s #%u %#lx -> %#lx pc %p", order_name(order), l, (unsigned long)old,
                  (unsigned long)value, from);
    put_message(l, bytes, value, order, &locations[l].messages[newest]);
    return old;
}

static bool atomic_cas_at(void *address, uint32_t bytes, uint64_t *expected, uint64_t value,
                          int order, int failure_order, const void *from) {
    if (!machine_running()) {
        uint64_t old = plain_load(address, bytes);
        bool same = old == *expected;
        if (same) plain_store(address, bytes, value);
        *expected = old;
        return same;
    }
    machine_point("cas");
    uint32_t l = location_of(address, bytes), newest = locations[l].count - 1;
    uint32_t at = pick(l, failure_order, expected);
    uint64_t old = locations[l].messages[at].value;
    bool same = at == newest && old == *expected;
    take_message(l, at, same ? order : failure_order);
    machine_trace("cas %s #%u %#lx expected %#lx -> %#lx: %s pc %p", order_name(order), l,
                  (unsigned long)old, (unsigned long)*expected, (unsigned long)value,
                  same ? "done" : "failed", from);
    if (same)
        put_message(l, bytes, value, order, &locations[l].messages[newest]);
    else
        *expected = old;
    return same;
}

/* ---- what gcc calls for code compiled with -fsanitize=thread ---- */

#define FROM __builtin_return_address(0)
#define PLAIN(n)                              \
    void __tsan_read##n(void *a);             \
    void __tsan_write##n(void *a);            \
    void __tsan_unaligned_read##n(void *a);   \
    void __tsan_unaligned_write##n(void *a);  \
    void __tsan_read##n(void *a) {            \
        plain_access(a, n, false, FROM);      \
    }                                         \
    void __tsan_write##n(void *a) {           \
        plain_access(a, n, true, FROM);       \
    }                                         \
    void __tsan_unaligned_read##n(void *a) {  \
        plain_access(a, n, false, FROM);      \
    }                                         \
    void __tsan_unaligned_write##n(void *a) { \
        plain_access(a, n, true, FROM);       \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_init(void);
void __tsan_func_entry(void *pc);
void __tsan_func_exit(void);
void __tsan_read_range(void *a, size_t bytes);
void __tsan_write_range(void *a, size_t bytes);
void __tsan_init(void) {
}
void __tsan_func_entry(void *pc) {
    (void)pc;
}
void __tsan_func_exit(void) {
}
void __tsan_read_range(void *a, size_t bytes) {
    plain_access(a, (uint32_t)bytes, false, FROM);
}
void __tsan_write_range(void *a, size_t bytes) {
    plain_access(a, (uint32_t)bytes, true, FROM);
}

#define RMW(bits, type, name, what)                                            \
    type __tsan_atomic##bits##_##name(volatile void *a, type v, int order);    \
    type __tsan_atomic##bits##_##name(volatile void *a, type v, int order) {   \
        return (type)atomic_rmw_at((void *)a, bits / 8, what, v, order, FROM); \
    }
#define CAS(bits, type, strength)                                                            \
    bool __tsan_atomic##bits##_compare_exchange_##strength(volatile void *a, void *expected, \
                                                           type v, int order, int failure);  \
    bool __tsan_atomic##bits##_compare_exchange_##strength(volatile void *a, void *expected, \
                                                           type v, int order, int failure) { \
        uint64_t wide = *(type *)expected;                                                   \
        bool done = atomic_cas_at((void *)a, bits / 8, &wide, v, order, failure, FROM);      \
        *(type *)expected = (type)wide;                                                      \
        return done;                                                                         \
    }
#define ATOMIC(bits, type)                                                   \
    type __tsan_atomic##bits##_load(const volatile void *a, int order);      \
    void __tsan_atomic##bits##_store(volatile void *a, type v, int order);   \
    type __tsan_atomic##bits##_load(const volatile void *a, int order) {     \
        return (type)atomic_load_at((const void *)a, bits / 8, order, FROM); \
    }                                                                        \
    void __tsan_atomic##bits##_store(volatile void *a, type v, int order) {  \
        atomic_store_at((void *)a, bits / 8, v, order, FROM);                \
    }                                                                        \
    RMW(bits, type, exchange, RMW_EXCHANGE)                                  \
    RMW(bits, type, fetch_add, RMW_ADD)                                      \
    RMW(bits, type, fetch_sub, RMW_SUB)                                      \
    RMW(bits, type, fetch_and, RMW_AND)                                      \
    RMW(bits, type, fetch_or, RMW_OR)                                        \
    CAS(bits, type, strong)                                                  \
    CAS(bits, type, weak)
ATOMIC(32, unsigned int)
ATOMIC(64, unsigned long)
