/* rules_pictures.c: files of pictures, over both dialects: which others a worker serves between two
 * slices of one, and what it is charged and learnt by.
 */
#include <string.h>

#include "flow/io_model.h"
#include "rules.h"

/* A side, and the slices that a square of it takes (pictures.c). */
enum {
    LARGE = 127,
    LARGE_SLICES = 32,
    MEDIUM = 63, /* a quarter of the pixels at most */
    MEDIUM_SLICES = 8,
    SMALL = 31 /* a quarter of those */
};
static const uint64_t large_pixels = LARGE * LARGE;

static struct talk one, two, three;

/* What comes before the floats, which are zeros, as all behind them. */
static void write_file(uint8_t file[SIM_FILE_BYTES], uint8_t side) {
    memset(file, 0, SIM_FILE_BYTES);
    memcpy(file, "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", 16);
    file[19] = file[23] = side;
    file[24] = 8;
}

static void shows(struct talk *talk, uint64_t id, uint8_t side) {
    uint8_t bytes[LM_NATIVE_REQUEST_BYTES + 4 + SIM_FILE_BYTES] = "LMN1";
    const uint32_t file_bytes = SIM_FILE_BYTES, payload = 4 + SIM_FILE_BYTES;
    bytes[4] = LM_KIND_INFER;
    bytes[5] = LM_ENCODING_IMAGE;
    bytes[6] = 2; /* the model */
    memcpy(bytes + 8, &id, sizeof id);
    memcpy(bytes + 16, &payload, sizeof payload);
    memcpy(bytes + LM_NATIVE_REQUEST_BYTES, &file_bytes, sizeof file_bytes);
    write_file(bytes + LM_NATIVE_REQUEST_BYTES + 4, side);
    talk_send(talk, bytes, sizeof bytes);
}

static void puts_file(struct talk *talk, uint8_t side) {
    uint8_t file[SIM_FILE_BYTES];
    char head[256];
    write_file(file, side);
    snprintf(
        head, sizeof head,
        "PUT /v2/models/picture/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
        sizeof file);
    talk_text(talk, head);
    talk_send(talk, file, sizeof file);
}

static void slices_of(uint64_t ns) {
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    pictures_slice_ns = ns;
}

/* ---- who is served between two slices ---- */

/* A small one is, one as large is not, whichever dialect it comes by. */
static void another_as_large(void) {
    slices_of(SIM_MS);
    uint64_t began_ns = sim_now_ns;
    shows(&one, 1, LARGE);
    pass(5 * SIM_MS);
    shows(&two, 2, LARGE);
    puts_file(&three, SMALL);
    talk_answered(&three, 200, "\"data\":[0");
    near_ns("the small one", sim_now_ns - began_ns, 8 * SIM_MS, 2 * SIM_MS);
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    uint64_t first_ns = sim_now_ns - began_ns;
    near_ns("the first", first_ns, (LARGE_SLICES + 2) * SIM_MS, 2 * SIM_MS);
    SIM_CHECK(two.peer->to_client.count == 0, "the second was decoded within the first");
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    near_ns("the second", sim_now_ns - began_ns - first_ns, LARGE_SLICES * SIM_MS, 2 * SIM_MS);
}

/* Two at a time: the third waits, however small it is. */
static void a_third(void) {
    slices_of(SIM_MS);
    shows(&one, 1, LARGE);
    pass(3 * SIM_MS);
    shows(&two, 2, MEDIUM);
    pass(3 * SIM_MS);
    shows(&three, 3, SMALL);
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    SIM_CHECK(three.peer->to_client.count == 0, "a third was decoded within the second");
    (void)talk_gets(&three, 3, LM_STATUS_OK);
    SIM_CHECK(one.peer->to_client.count == 0, "the first was decoded at once");
    (void)talk_gets(&one, 1, LM_STATUS_OK);
}

/* ---- what it costs ---- */

static uint64_t large_estimate_ns(void) {
    return sim_models.models[2]->sides[0]->costs[LM_ENCODING_PNG][0].row_ns;
}

static void many_slots(struct sim_plan *plan) {
    plan->slots = 32;
}

/* The time in which its worker served others is not its own: the first measurement counts a half.
 */
static void others_time(void) {
    enum { OTHERS = 12 };
    slices_of(40 * SIM_US); /* in which they do not all fit between two slices */
    uint64_t before_ns = large_estimate_ns(), own_ns = LARGE_SLICES * pictures_slice_ns;
    shows(&one, 1, LARGE);
    pass(200 * SIM_US);
    for (uint64_t n = 0; n < OTHERS; n++) shows(&two, n, MEDIUM);
    for (uint64_t n = 0; n < OTHERS; n++) (void)talk_gets(&two, n, LM_STATUS_OK);
    SIM_CHECK(one.peer->to_client.count == 0, "the others came after it");
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    pass(200 * SIM_MS); /* the slot comes back */
    near_ns("the estimate", large_estimate_ns(), (before_ns + own_ns) / 2, 60 * SIM_US);
}

static uint64_t work_of_large_ns(void) {
    return large_estimate_ns() * (large_pixels + 1) /
           sim_models.models[2]->input_plan.image.max_pixels;
}

static void is_in_flight(uint64_t expected_ns) {
    pass(5 * SIM_MS);
    near_ns("the work in flight", sim_shared.ios[0].work_ns, expected_ns, expected_ns / 100);
}

static void nothing_is_in_flight(void) {
    pass(200 * SIM_MS);
    SIM_CHECK(sim_shared.ios[0].work_ns == 0, "work is in flight still");
}

/* While it is in flight it counts by the pixels in its header, not by its few bytes. */
static void by_pixels(void) {
    slices_of(SIM_MS);
    uint64_t expected_ns = work_of_large_ns();
    shows(&one, 1, LARGE);
    is_in_flight(expected_ns);
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    nothing_is_in_flight();
    expected_ns = work_of_large_ns();
    puts_file(&two, LARGE); /* a probe, which counts nothing: its body was not known */
    puts_file(&three, LARGE);
    is_in_flight(expected_ns);
    talk_answered(&two, 200, "\"data\":[0");
    talk_answered(&three, 200, "\"data\":[0");
    nothing_is_in_flight();
}

const struct rule rules_of_pictures[] = {
    {"another picture as large", NULL, another_as_large},
    {"a third picture", NULL, a_third},
    {"the time of others", many_slots, others_time},
    {"charged by its pixels", NULL, by_pixels},
};
const size_t rules_of_pictures_count = sizeof rules_of_pictures / sizeof rules_of_pictures[0];
