/* budgets.c: see budgets.h. */
#include "parts/budgets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define USED_MASK ((1ull << LUMEN_BUDGET_USED_BITS) - 1)
#define WINDOW_MASK ((1u << (64 - LUMEN_BUDGET_USED_BITS)) - 1)
enum { LATER_MAX = 15 }; /* windows */
enum { FILE_BYTES = LUMEN_BUDGET_HEADER_BYTES + LUMEN_BUDGETS_MAX * (int)sizeof(struct lm_budget) };

static const uint32_t window_s[LUMEN_BUDGET_LIMITS] = {60, 86400, 60, 86400};

struct header {
    char magic[8];
    uint32_t entries, entry_bytes;
};

static struct lm_budget *entries_of(const struct lm_budgets *budgets) {
    /* B2: acquire: the memory is mapped, and its entry named; pairs with B1 */
    return (struct lm_budget *)(uintptr_t)lm_load_acquire_u64(&budgets->entries);
}

/* ---- counts ---- */

static uint32_t window_at(uint32_t limit_at, uint64_t now_s) {
    return (uint32_t)(now_s / window_s[limit_at]) & WINDOW_MASK;
}

/* How far a count's window lies ahead of another one. */
static int32_t ahead(uint64_t count, uint32_t window) {
    const uint32_t of_count = (uint32_t)(count >> LUMEN_BUDGET_USED_BITS);
    return (int32_t)((of_count - window) << (32 - 24)) >> (32 - 24);
}

static uint64_t packed(uint32_t window, uint64_t used) {
    return (uint64_t)window << LUMEN_BUDGET_USED_BITS | (used < USED_MASK ? used : USED_MASK);
}

/* Takes n, or all that is there and more where `limit` is 0. Returns what is left for a refusal,
 * and UINT64_MAX where it was taken; `window` becomes the one that it was taken from. relaxed, all:
 * the word is the whole state, and all its changes have one order. */
static uint64_t take(lm_atomic_u64 *count, uint64_t limit, uint64_t n, uint32_t *window) {
    uint64_t before = lm_load_relaxed_u64(count), next;
    do {
        /* Others have begun a later one. Where it is much later, the clock was set back. */
        const int32_t later = ahead(before, *window);
        if (later > 0 && later <= LATER_MAX) *window = (uint32_t)(before >> LUMEN_BUDGET_USED_BITS);
        const uint64_t used = ahead(before, *window) == 0 ? before & USED_MASK : 0;
        if (limit && (used > limit || n > limit - used)) return used < limit ? limit - used : 0;
        next = packed(*window, used + n);
    } while (!lm_cas_weak_relaxed_u64(count, &before, next));
    return UINT64_MAX;
}

/* To the window it was taken from, if that is still the count's. */
static void give_back(lm_atomic_u64 *count, uint64_t n, uint32_t window) {
    uint64_t before = lm_load_relaxed_u64(count), next; /* relaxed, both: as in take */
    do {
        if (ahead(before, window) != 0) return;
        const uint64_t used = before & USED_MASK;
        next = packed(window, used > n ? used - n : 0);
    } while (!lm_cas_weak_relaxed_u64(count, &before, next));
}

/* ---- requests ---- */

static uint64_t wanted(uint32_t limit_at, uint32_t requests, uint64_t tokens) {
    return limit_at <= LUMEN_REQUESTS_PER_DAY ? requests : tokens;
}

static uint32_t *window_of(struct lm_budget_tally *tally, uint32_t limit_at) {
    return window_s[limit_at] == 60 ? &tally->minute : &tally->day;
}

/* Of one owner. Returns how many of its limits were taken from: all, or those before the one that
 * had too little. */
static uint32_t take_limits(struct lm_budget *budget, struct lm_budget_tally *tally,
                            uint32_t requests, uint64_t tokens, uint64_t now_s,
                            struct lm_budget_shortage *why) {
    for (uint32_t l = 0; l < LUMEN_BUDGET_LIMITS; l++) {
        const uint64_t limit = lm_load_relaxed_u64(&budget->limit[l]); /* relaxed: a setting */
        const uint64_t n = wanted(l, requests, tokens);
        uint32_t *window = window_of(tally, l);
        if (!limit || !n) continue;
        const uint64_t left = take(&budget->count[l], limit, n, window);
        if (left == UINT64_MAX) continue;
        const uint32_t wait_s = window_s[l] - (uint32_t)(now_s % window_s[l]);
        *why = (struct lm_budget_shortage){budget->name,          budget->kind, l, limit, left, n,
                                           n > limit ? 0 : wait_s};
        return l;
    }
    return LUMEN_BUDGET_LIMITS;
}

static void give_limits(struct lm_budget *budget, struct lm_budget_tally *tally, uint32_t count,
                        uint32_t requests, uint64_t tokens) {
    for (uint32_t l = 0; l < count; l++) {
        const uint64_t n = wanted(l, requests, tokens);
        if (n && lm_load_relaxed_u64(&budget->limit[l])) /* relaxed: a setting */
            give_back(&budget->count[l], n, *window_of(tally, l));
    }
}

bool lm_budgets_take(const struct lm_budgets *budgets, struct lm_budget_tally *tally,
                     uint32_t requests, uint64_t tokens, uint64_t now_s,
                     struct lm_budget_shortage *why) {
    struct lm_budget *entries = entries_of(budgets);
    tally->minute = window_at(LUMEN_REQUESTS_PER_MINUTE, now_s);
    tally->day = window_at(LUMEN_REQUESTS_PER_DAY, now_s);
    for (uint32_t o = 0; o < LM_BUDGET_OWNERS; o++) {
        if (!tally->of[o]) continue;
        struct lm_budget *budget = &entries[tally->of[o] - 1];
        const uint32_t taken = take_limits(budget, tally, requests, tokens, now_s, why);
        if (taken == LUMEN_BUDGET_LIMITS) continue;
        (void)lm_count_relaxed_u64(&budget->refused, 1); /* relaxed: a count alone */
        give_limits(budget, tally, taken, requests, tokens);
        for (uint32_t before = 0; before < o; before++)
            if (tally->of[before])
                give_limits(&entries[tally->of[before] - 1], tally, LUMEN_BUDGET_LIMITS, requests,
                            tokens);
        return false;
    }
    for (uint32_t o = 0; o < LM_BUDGET_OWNERS; o++)
        if (tally->of[o] && requests) /* relaxed: a count alone */
            (void)lm_count_relaxed_u64(&entries[tally->of[o] - 1].requests, requests);
    tally->tokens += tokens;
    return true;
}

void lm_budgets_settle(const struct lm_budgets *budgets, struct lm_budget_tally *tally,
                       uint64_t tokens, uint64_t now_s) {
    struct lm_budget *entries = entries_of(budgets);
    for (uint32_t o = 0; o < LM_BUDGET_OWNERS; o++) {
        if (!tally->of[o]) continue;
        struct lm_budget *budget = &entries[tally->of[o] - 1];
        if (tokens)
            (void)lm_count_relaxed_u64(&budget->tokens, tokens); /* relaxed: a count alone */
        for (uint32_t l = LUMEN_TOKENS_PER_MINUTE; l < LUMEN_BUDGET_LIMITS; l++) {
            uint32_t now = window_at(l, now_s);
            if (!lm_load_relaxed_u64(&budget->limit[l])) continue; /* relaxed: a setting */
            if (tokens < tally->tokens)
                give_back(&budget->count[l], tally->tokens - tokens, *window_of(tally, l));
            else if (tokens > tally->tokens)
                (void)take(&budget->count[l], 0, tokens - tally->tokens, &now);
        }
    }
    *tally = (struct lm_budget_tally){0};
}

/* ---- the file ---- */

/* Whether it holds budgets of this version, or nothing yet. */
static bool is_fit(int fd, const struct stat *there) {
    struct header header = {0};
    if (there->st_size == 0) return true;
    return there->st_size == FILE_BYTES &&
           pread(fd, &header, sizeof header, 0) == (ssize_t)sizeof header &&
           memcmp(header.magic, LUMEN_BUDGET_MAGIC, sizeof header.magic) == 0 &&
           header.entries == LUMEN_BUDGETS_MAX && header.entry_bytes == sizeof(struct lm_budget);
}

/* Its pages are taken: later there may be none left, and that would end the process. Returns 0 or
 * an errno. */
static int fill(int fd) {
    struct header header = {.entries = LUMEN_BUDGETS_MAX, .entry_bytes = sizeof(struct lm_budget)};
    memcpy(header.magic, LUMEN_BUDGET_MAGIC, sizeof header.magic);
    const int refused = posix_fallocate(fd, 0, FILE_BYTES);
    if (refused) return refused;
    return pwrite(fd, &header, sizeof header, 0) == (ssize_t)sizeof header ? 0 : EIO;
}

/* Maps what is open, under its lock. Returns 0 or an errno. */
static int map(struct lm_budgets *budgets, int fd) {
    const int refused = fill(fd);
    void *base =
        refused ? MAP_FAILED : mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return refused ? refused : errno;
    budgets->memory = (struct lm_mapping){.base = base, .bytes = FILE_BYTES};
    budgets->fd = fd;
    (void)flock(fd, LOCK_UN);
    return 0;
}

/* The file that the next server on the port finds. One of another version gives way to it: whoever
 * has it mapped keeps that. Returns 0, or an errno where there can be none. */
static int map_file(struct lm_budgets *budgets, uint32_t port) {
    snprintf(budgets->path, sizeof budgets->path, "/dev/shm/lumen-%u.budgets", port);
    for (bool again = false;; again = true) {
        struct stat there;
        const int fd =
            open(budgets->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0) return errno;
        int refused = flock(fd, LOCK_EX) == 0 && fstat(fd, &there) == 0 ? 0 : errno;
        const bool is_ours = !refused && S_ISREG(there.st_mode) && there.st_uid == geteuid();
        if (!refused && !is_ours) refused = EPERM;
        if (!refused && is_fit(fd, &there))
            refused = map(budgets, fd);
        else if (!refused)
            refused = !again && unlink(budgets->path) == 0 ? EAGAIN : EEXIST;
        if (refused) close(fd);
        if (refused != EAGAIN) return refused;
    }
}

/* One that has no name, and is gone with this process. */
static int map_nameless(struct lm_budgets *budgets) {
    const int fd = memfd_create("lumen-budgets", MFD_CLOEXEC);
    if (fd >= 0 && map(budgets, fd) == 0) {
        snprintf(budgets->path, sizeof budgets->path, "/proc/%d/fd/%d", (int)getpid(), fd);
        return 0;
    }
    if (fd >= 0) close(fd);
    return lm_error(LUMEN_E_NOMEM, "no memory for budgets");
}

int lm_budgets_open(struct lm_budgets *budgets, uint32_t port, char *note, size_t note_bytes) {
    note[0] = '\0';
    const int refused = port ? map_file(budgets, port) : 0;
    if (refused)
        snprintf(note, note_bytes, "budgets: the next server begins with new counts: %s: %s",
                 budgets->path, strerror(refused));
    int code = port && !refused ? 0 : map_nameless(budgets);
    if (code) return code;
    /* B1: release: what the entries are of is written later, with a lock; pairs with B2 */
    lm_store_release_u64(&budgets->entries,
                         (uintptr_t)budgets->memory.base + LUMEN_BUDGET_HEADER_BYTES);
    return 0;
}

void lm_budgets_close(struct lm_budgets *budgets) {
    if (!entries_of(budgets)) return;
    lm_store_relaxed_u64(&budgets->entries, 0); /* relaxed: no thread runs */
    lm_mapping_close(&budgets->memory);
    close(budgets->fd);
}

/* ---- names ---- */

static const char *word_of(uint32_t kind) {
    return kind == LUMEN_BUDGET_OF_KEY ? "key" : "model";
}

static int check(const lumen_budget_config *config, uint32_t count) {
    if (count > LUMEN_BUDGETS_MAX)
        return lm_error(LUMEN_E_INVALID, "budgets: expected at most %d, found %u",
                        LUMEN_BUDGETS_MAX, count);
    for (uint32_t c = 0; c < count; c++) {
        const lumen_budget_config *one = &config[c];
        const size_t bytes = one->name ? strnlen(one->name, LUMEN_BUDGET_NAME_BYTES) : 0;
        if (one->kind != LUMEN_BUDGET_OF_KEY && one->kind != LUMEN_BUDGET_OF_MODEL)
            return lm_error(LUMEN_E_INVALID, "budget %u: kind: expected 1 or 2, found %u", c,
                            one->kind);
        if (bytes < 1 || bytes >= LUMEN_BUDGET_NAME_BYTES)
            return lm_error(LUMEN_E_INVALID, "budget %u: name: expected 1 to %d bytes", c,
                            LUMEN_BUDGET_NAME_BYTES - 1);
        for (uint32_t l = 0; l < LUMEN_BUDGET_LIMITS; l++)
            if (one->limit[l] >= USED_MASK)
                return lm_error(LUMEN_E_INVALID, "budget of %s '%s': expected a limit below %llu",
                                word_of(one->kind), one->name, USED_MASK);
    }
    return 0;
}

/* Whether the entry has this name. A damaged file may hold one without an end: nothing is read
 * beyond the entry. */
static bool is_named(const struct lm_budget *entry, const char *name) {
    return strncmp(entry->name, name, sizeof entry->name) == 0;
}

static struct lm_budget *named(struct lm_budget *entries, uint32_t kind, const char *name) {
    for (uint32_t e = 0; e < LUMEN_BUDGETS_MAX; e++)
        if (entries[e].kind == kind && is_named(&entries[e], name)) return &entries[e];
    return NULL;
}

/* Nobody has used it today or yesterday. */
static bool is_over(const struct lm_budget *budget, uint64_t now_s) {
    for (uint32_t l = 0; l < LUMEN_BUDGET_LIMITS; l++) {
        const uint64_t count = lm_load_relaxed_u64(&budget->count[l]); /* relaxed: old words */
        if (count && ahead(count, window_at(l, now_s)) >= -1) return false;
    }
    return true;
}

/* Nobody's any more. */
static bool is_left(const struct lm_budget *budget, uint64_t now_s) {
    for (uint32_t l = 0; l < LUMEN_BUDGET_LIMITS; l++)
        if (lm_load_relaxed_u64(&budget->limit[l])) return false; /* relaxed: a setting */
    return is_over(budget, now_s);
}

/* Under the file's lock. */
static struct lm_budget *make(struct lm_budget *entries, uint32_t kind, const char *name,
                              uint64_t now_s) {
    struct lm_budget *entry = NULL;
    for (uint32_t e = 0; !entry && e < LUMEN_BUDGETS_MAX; e++)
        if (!entries[e].kind) entry = &entries[e];
    for (uint32_t e = 0; !entry && e < LUMEN_BUDGETS_MAX; e++)
        if (is_left(&entries[e], now_s)) entry = &entries[e];
    if (!entry) return NULL;
    memset(entry, 0, sizeof *entry);
    memcpy(entry->name, name, strlen(name));
    entry->kind = kind;
    return entry;
}

/* Goes on with a count of an earlier time, where that is of a later window or more. */
static void restore(lm_atomic_u64 *count, uint64_t kept) {
    uint64_t before = lm_load_relaxed_u64(count); /* relaxed, both: as in take */
    do {
        const int32_t later = ahead(before, (uint32_t)(kept >> LUMEN_BUDGET_USED_BITS));
        if (!kept || (before && (later > 0 || (later == 0 && before >= kept)))) return;
    } while (!lm_cas_weak_relaxed_u64(count, &before, kept));
}

static bool is_listed(const struct lm_budget *entry, const lumen_budget_config *config,
                      uint32_t count) {
    for (uint32_t c = 0; c < count; c++)
        if (config[c].kind == entry->kind && is_named(entry, config[c].name)) return true;
    return false;
}

/* Whether there will be an entry for each name, once those that are not listed have no limits.
 * Asked before any entry changes. */
static bool is_room(struct lm_budget *entries, const lumen_budget_config *config, uint32_t count,
                    uint64_t now_s) {
    uint32_t wanted = 0, room = 0;
    for (uint32_t c = 0; c < count; c++) wanted += !named(entries, config[c].kind, config[c].name);
    for (uint32_t e = 0; e < LUMEN_BUDGETS_MAX; e++)
        room += !entries[e].kind ||
                (!is_listed(&entries[e], config, count) && is_over(&entries[e], now_s));
    return wanted <= room;
}

static int refuse(const struct lm_budgets *budgets) {
    return lm_error(LUMEN_E_INVALID,
                    "budgets: expected at most %d names in two days: %s has no free entry",
                    LUMEN_BUDGETS_MAX, budgets->path);
}

static int set(struct lm_budgets *budgets, const lumen_budget_config *config, uint32_t count,
               uint64_t now_s) {
    struct lm_budget *entries = entries_of(budgets);
    if (!is_room(entries, config, count, now_s)) return refuse(budgets);
    for (uint32_t e = 0; e < LUMEN_BUDGETS_MAX; e++)
        for (uint32_t l = 0; !is_listed(&entries[e], config, count) && l < LUMEN_BUDGET_LIMITS; l++)
            lm_store_relaxed_u64(&entries[e].limit[l], 0); /* relaxed: a setting */
    for (uint32_t c = 0; c < count; c++) {
        struct lm_budget *entry = named(entries, config[c].kind, config[c].name);
        if (!entry) entry = make(entries, config[c].kind, config[c].name, now_s);
        if (!entry) return refuse(budgets); /* another server's requests were there first */
        for (uint32_t l = 0; l < LUMEN_BUDGET_LIMITS; l++) {
            restore(&entry->count[l], config[c].count[l]);
            lm_store_relaxed_u64(&entry->limit[l], config[c].limit[l]); /* relaxed: a setting */
        }
    }
    return 0;
}

int lm_budgets_set(struct lm_budgets *budgets, const lumen_budget_config *config, uint32_t count,
                   uint64_t now_s) {
    int code = check(config, count);
    if (code || !entries_of(budgets)) return code;
    (void)flock(budgets->fd, LOCK_EX); /* one server of the port at a time */
    code = set(budgets, config, count, now_s);
    (void)flock(budgets->fd, LOCK_UN);
    return code;
}

uint32_t lm_budgets_find(const struct lm_budgets *budgets, uint32_t kind, const char *name) {
    struct lm_budget *entries = entries_of(budgets);
    const struct lm_budget *found = entries ? named(entries, kind, name) : NULL;
    return found ? (uint32_t)(found - entries) + 1 : 0;
}

void lm_budgets_name_model(struct lm_budgets *budgets, uint32_t model, const char *name) {
    lm_store_relaxed_u32(&budgets->of_model[model], /* relaxed: the entry is in B1's memory */
                         lm_budgets_find(budgets, LUMEN_BUDGET_OF_MODEL, name));
}
