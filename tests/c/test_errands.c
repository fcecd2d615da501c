/* test_errands.c: calls that the control program answers: each comes back once, the oldest first,
 * whoever leaves meanwhile; so many and no more (row 45).
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "lumen.h"
#include "parts/errands.h"
#include "server/state.h"

enum { IOS = 3, CALLS = 3000, ALL_KINDS = 0x1f };

static struct lm_errands *errands;

static struct lm_errand *submit(uint32_t io, const char *name) {
    struct lm_errand *errand = lm_errands_acquire(errands, io);
    if (!errand) return NULL;
    snprintf(errand->name, sizeof errand->name, "%s", name);
    memcpy(errand->text, name, strlen(name));
    errand->text_bytes = (uint32_t)strlen(name);
    lm_errands_submit(errands, errand);
    return errand;
}

static void one_after_another(void) {
    CHECK(lm_errands_open(&errands, 2, ALL_KINDS, 0) == 0);
    CHECK(lm_errands_next(errands, 0) == NULL);
    struct lm_errand *first = submit(1, "a"), *second = submit(0, "b");
    CHECK(!lm_errand_is_finished(first));
    struct lm_errand *taken = lm_errands_next(errands, 0);
    CHECK(taken == first && lm_errands_next(errands, 0) == second);
    uint32_t id = lm_errands_id(errands, taken);
    CHECK(lm_errands_taken(errands, id) == first);
    CHECK(lm_errands_taken(errands, 99) == NULL);
    CHECK(lm_errands_finish(taken, 200, "[1]", 3) == 0);
    CHECK(lm_errand_is_finished(first) && !lm_errand_is_finished(second));
    CHECK(first->code == 200 && first->reply_bytes == 3 && memcmp(first->reply, "[1]", 3) == 0);
    lm_errand_give(first);
    CHECK(lm_errands_next(errands, 0) == NULL); /* frees the answer */
    CHECK(lm_errands_taken(errands, id) == NULL);
    CHECK(lm_errands_finish(second, 200, NULL, 0) == 0 && second->reply_bytes == 0);
    lm_errands_close(errands);
}

static void so_many(void) {
    CHECK(lm_errands_open(&errands, 2, ALL_KINDS, 0) == 0);
    for (uint32_t e = 0; e < LM_ERRANDS_PER_IO; e++) CHECK(submit(0, "m"));
    CHECK(submit(0, "m") == NULL && submit(1, "m"));
    struct lm_errand *taken[LM_ERRANDS_PER_IO + 1];
    for (uint32_t e = 0; e <= LM_ERRANDS_PER_IO; e++)
        CHECK((taken[e] = lm_errands_next(errands, 0)));
    for (uint32_t e = 0; e <= LM_ERRANDS_PER_IO; e++) {
        CHECK(lm_errands_finish(taken[e], 400, "no", 2) == 0);
        lm_errand_give(taken[e]);
    }
    CHECK(submit(0, "m") == NULL); /* until the control program comes by */
    CHECK(lm_errands_next(errands, 0) == NULL && submit(0, "m"));
    lm_errands_close(errands);
}

/* The client leaves before its call is looked at, while it is carried out, and after that. */
static void abandoned(void) {
    CHECK(lm_errands_open(&errands, 1, 1u << LUMEN_ERRAND_LOAD, 0) == 0);
    CHECK(lm_errands_take(errands, LUMEN_ERRAND_LOAD));
    CHECK(!lm_errands_take(errands, LUMEN_ERRAND_INDEX));
    struct lm_errand *early = submit(0, "early");
    lm_errand_abandon(early);
    CHECK(lm_errands_next(errands, 0) == NULL);
    struct lm_errand *late = submit(0, "late");
    CHECK(late == early && lm_errands_next(errands, 0) == late);
    lm_errand_abandon(late);
    CHECK(submit(0, "other") != late);
    CHECK(lm_errands_finish(late, 200, "x", 1) == 0);
    CHECK(submit(0, "again") == late); /* it was freed at once */
    struct lm_errand *other = lm_errands_next(errands, 0);
    CHECK(other && lm_errands_finish(other, 200, "x", 1) == 0);
    lm_errand_abandon(other);
    CHECK(!lm_errand_is_finished(other));
    CHECK(lm_errands_next(errands, 0) == late && lm_errands_next(errands, 0) == NULL);
    lm_errands_close(errands);
}

/* ---- bodies that are larger than an entry ---- */

enum { LARGE = 40000 };

static void fill(struct lm_errand *errand, size_t bytes) {
    memset(errand->upload.base, 'a', bytes);
    errand->text_bytes = bytes;
}

static void uploads(void) {
    CHECK(lm_errands_open(&errands, 2, ALL_KINDS, LARGE) == 0);
    CHECK(lm_errands_upload_bytes(errands) == LARGE);
    struct lm_errand *first = lm_errands_begin_upload(errands, 0, LARGE);
    CHECK(first && first->upload.bytes >= LARGE);
    CHECK(!lm_errands_begin_upload(errands, 0, LARGE)); /* one at a time */
    CHECK(lm_errands_begin_upload(errands, 1, 20000));  /* of an I/O thread */
    struct lm_errand *small = submit(0, "small");       /* other calls go on */
    CHECK(small && small != first && lm_errands_next(errands, 0) == small);
    fill(first, LARGE);
    lm_errands_submit(errands, first);
    CHECK(lm_errands_next(errands, 0) == first && !lm_errands_begin_upload(errands, 0, 9000));
    CHECK(((char *)first->upload.base)[LARGE - 1] == 'a' &&
          ((char *)first->upload.base)[LARGE] == '\0');
    CHECK(lm_errands_finish(first, 200, "x", 1) == 0 && lm_errand_is_finished(first));
    lm_errand_give(first);
    CHECK(lm_errands_next(errands, 0) == NULL && first->upload.bytes == 0);
    /* A call of any size may have its entry next, and is no upload. */
    struct lm_errand *again = submit(0, "again");
    struct lm_errand *other = lm_errands_begin_upload(errands, 0, LARGE);
    CHECK(again == first && other && other != first);
    lm_errands_drop(errands, other);
    CHECK(lm_errands_next(errands, 0) == again && lm_errands_finish(again, 200, "x", 1) == 0);
    lm_errand_give(again);
    CHECK(lm_errands_next(errands, 0) == NULL);
    /* Its client leaves before it is whole: nobody is asked, and the memory goes. */
    struct lm_errand *second = lm_errands_begin_upload(errands, 0, LARGE);
    CHECK(second);
    fill(second, 100);
    lm_errands_drop(errands, second);
    CHECK(lm_errands_next(errands, 0) == NULL && second->upload.bytes == 0);
    CHECK(lm_errands_begin_upload(errands, 0, LARGE));
    lm_errands_close(errands);
}

/* ---- the control program's calls ---- */

/* The I/O thread whose client waits is woken, however long it may sleep. */
static void a_finished_one_wakes_its_thread(void) {
    static lumen_server server;
    struct lm_completion completions[4];
    lumen_errand found;
    CHECK(lumen_next_errand(&server, 0, &found) == LUMEN_E_STATE);
    CHECK(lumen_open_errands(&server, ALL_KINDS, 0) == 0);
    CHECK(lm_ring_open(&server.ios[1].ring, LUMEN_IO_AUTO, 4) == 0);
    errands = server.shared.errands;
    CHECK(lumen_next_errand(&server, 0, &found) == LUMEN_E_AGAIN && submit(1, "model"));
    CHECK(lumen_next_errand(&server, 0, &found) == 0 && strcmp(found.name, "model") == 0);
    CHECK(found.body_bytes == 5 && memcmp(found.body, "model", 5) == 0);
    CHECK(lumen_finish_errand(&server, found.id + 1, 200, "[]", 2) == LUMEN_E_INVALID);
    CHECK(lumen_finish_errand(&server, found.id, 200, "[]", 2) == 0);
    check_watchdog(60, "an I/O thread that is woken");
    const int count = lm_ring_wait(server.ios[1].ring, 0, UINT64_MAX, completions, 4);
    check_watchdog(0, "");
    CHECK(count == 1 && completions[0].op == LM_OP_WAKE);
    lm_ring_close(server.ios[1].ring);
    lm_errands_close(errands);
}

/* ---- under load ---- */

static uint32_t answered[IOS], left[IOS];

static void *io_thread(void *argument) {
    uint32_t io = (uint32_t)(uintptr_t)argument, seed = io + 1;
    for (uint32_t begun = 0; answered[io] + left[io] < CALLS;) {
        if (begun % 5 == 4) { /* one that is large, of which every other one is not to be whole */
            struct lm_errand *large = lm_errands_begin_upload(errands, io, LARGE);
            if (large) {
                fill(large, LARGE);
                memcpy(large->upload.base, "model", 5);
                if (begun % 2) {
                    lm_errands_drop(errands, large);
                } else {
                    lm_errands_submit(errands, large);
                    begun++;
                }
            }
        }
        struct lm_errand *errand = begun < CALLS ? submit(io, "model") : NULL;
        begun += errand != NULL;
        for (uint32_t e = 0; e < LM_ERRANDS_PER_IO; e++) {
            struct lm_errand *mine = lm_errands_at(errands, io, e);
            if (!mine->is_asked) continue;
            seed = seed * 1103515245u + 12345u;
            if (seed >> 28 == 0) {
                left[io]++;
                lm_errand_abandon(mine);
            } else if (lm_errand_is_finished(mine)) {
                CHECK(mine->code == 200 && memcmp(mine->reply, "model", 5) == 0);
                answered[io]++;
                lm_errand_give(mine);
            }
        }
        sched_yield();
    }
    return NULL;
}

static void *control_thread(void *argument) {
    lm_atomic_u32 *stop = argument;
    while (!lm_load_acquire_u32(stop)) {
        struct lm_errand *errand = lm_errands_next(errands, 1);
        if (!errand) continue;
        const char *text = errand->upload.bytes ? errand->upload.base : errand->text;
        CHECK(lm_errands_finish(errand, 200, text, errand->text_bytes) == 0);
    }
    return NULL;
}

static void each_comes_back_once(void) {
    pthread_t ios[IOS], control;
    lm_atomic_u32 stop;
    lm_store_relaxed_u32(&stop, 0);
    CHECK(lm_errands_open(&errands, IOS, ALL_KINDS, LARGE) == 0);
    CHECK(pthread_create(&control, NULL, control_thread, &stop) == 0);
    for (uintptr_t i = 0; i < IOS; i++)
        CHECK(pthread_create(&ios[i], NULL, io_thread, (void *)i) == 0);
    for (uint32_t i = 0; i < IOS; i++) pthread_join(ios[i], NULL);
    lm_store_release_u32(&stop, 1);
    pthread_join(control, NULL);
    for (uint32_t i = 0; i < IOS; i++) CHECK(answered[i] > 0 && answered[i] + left[i] == CALLS);
    (void)lm_errands_next(errands, 0);
    lm_errands_close(errands);
}

static void *waits_for_an_hour(void *argument) {
    (void)argument;
    CHECK(lm_errands_next(errands, 3600 * 1000) == NULL);
    return NULL;
}

/* A call that waits, and one that begins to, when the server ends. */
static void the_end(void) {
    pthread_t waiting;
    CHECK(lm_errands_open(&errands, IOS, ALL_KINDS, LARGE) == 0);
    CHECK(pthread_create(&waiting, NULL, waits_for_an_hour, NULL) == 0);
    lm_errands_end(errands);
    pthread_join(waiting, NULL);
    waits_for_an_hour(NULL);
    lm_errands_close(errands);
}

int main(void) {
    one_after_another();
    so_many();
    abandoned();
    uploads();
    a_finished_one_wakes_its_thread();
    each_comes_back_once();
    the_end();
    return check_finish("test_errands");
}
