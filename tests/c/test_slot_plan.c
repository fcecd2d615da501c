/* test_slot_plan.c: the slots an arena gets, for models made by hand: what must be promised (every
 * model's requests have slots, memory stays within bounds) and what must be refused, with the need.
 */
#include "base/error.h"
#include "base/native_codec.h"
#include "check.h"
#include "flow/slot_plan.h"
#include "formats/text_slots.h"
#include "models/layout.h"

enum { MODELS = 64, MANY = 2000 };
static struct lm_model models[MANY];
static lumen_slot_class classes[LUMEN_SLOT_CLASSES_MAX];
static uint32_t class_count;

/* Half of the arena for models that come later, and the other half free for their annexes. */
static void no_models(void) {
    struct lm_slot_plan_limits limits = {.arena_bytes = 256 << 20,
                                         .max_request_bytes = 8 << 20,
                                         .slot_count_max = 1024,
                                         .worker_count = 2};
    CHECK(lm_slot_plan(NULL, 0, &limits, classes, &class_count) == 0 && class_count == 3);
    CHECK(classes[1].slot_bytes == LM_SMALL_SLOT_BYTES && classes[1].slot_count > 256);
    CHECK(classes[2].slot_bytes == LM_LATER_SLOT_BYTES && classes[2].slot_count >= 32);
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < class_count; c++)
        bytes += classes[c].slot_bytes * classes[c].slot_count;
    CHECK(bytes <= limits.arena_bytes / 2);
    limits.arena_bytes = 2 << 20; /* no room for the larger ones */
    CHECK(lm_slot_plan(NULL, 0, &limits, classes, &class_count) == 0 && class_count == 2);
    limits.arena_bytes = 1 << 19; /* nor for the others */
    CHECK(lm_slot_plan(NULL, 0, &limits, classes, &class_count) == 0 && class_count == 1);
    limits.arena_bytes = 64 << 10;
    CHECK(lm_slot_plan(NULL, 0, &limits, classes, &class_count) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "server.arena_bytes: expected at least"));
}

/* One input, one output of float-like tensors; max_rows 1 makes a model of fixed shape. */
static void make_model(uint32_t index, size_t input_bytes, size_t output_bytes, uint32_t max_rows) {
    static struct lm_tensor tensors[MANY][2];
    struct lm_model *model = &models[index];
    memset(model, 0, sizeof *model);
    model->inputs = &tensors[index][0];
    model->outputs = &tensors[index][1];
    snprintf(model->name, sizeof model->name, "model-%u", index);
    model->index = index;
    model->input_count = model->output_count = 1;
    model->inputs[0] = (struct lm_tensor){.rank = 2,
                                          .rows_free = max_rows > 1,
                                          .shape_known = true,
                                          .element_bytes = 1,
                                          .row_bytes = input_bytes};
    model->outputs[0] = (struct lm_tensor){.rank = 2,
                                           .rows_free = max_rows > 1,
                                           .shape_known = true,
                                           .element_bytes = 1,
                                           .row_bytes = output_bytes};
    model->rows_free = max_rows > 1;
    model->outputs_known = true;
    model->max_rows = max_rows;
    model->reply_text_bytes = lm_model_reply_text_bytes(model);
}

static size_t slot_of(uint32_t index, uint32_t rows) {
    size_t bytes = 0;
    CHECK(lm_model_slot_bytes(&models[index], ROWS(rows), &bytes));
    return bytes;
}

/* The room for HTTP's texts in a slot. */
static size_t text_of(uint32_t index) {
    return lm_align_up(lm_model_reply_text_bytes(&models[index]), LM_SLOT_ALIGN);
}

static uint64_t slots_of_at_least(uint64_t bytes) {
    uint64_t slots = 0;
    for (uint32_t c = 1; c < class_count; c++)
        slots += classes[c].slot_bytes >= bytes ? classes[c].slot_count : 0;
    return slots;
}

/* What every plan promises, whatever the models. */
static void check_plan(const uint32_t *rows_before, uint32_t count,
                       const struct lm_slot_plan_limits *limits) {
    uint64_t bytes = 0;
    CHECK(class_count >= 2 && class_count <= LUMEN_SLOT_CLASSES_MAX);
    CHECK(classes[0].slot_bytes == LM_REPLY_SLOT_BYTES && classes[0].slot_count == LM_REPLY_SLOTS);
    for (uint32_t c = 0; c < class_count; c++) {
        CHECK(classes[c].slot_bytes % LM_SLOT_ALIGN == 0 && classes[c].slot_count >= 1);
        CHECK(c == 0 || classes[c].slot_bytes > classes[c - 1].slot_bytes);
        CHECK(classes[c].slot_bytes <=
              limits->arena_bytes / classes[c].slot_count); /* no overflow below */
        bytes += classes[c].slot_bytes * classes[c].slot_count;
    }
    CHECK(bytes <= limits->arena_bytes);
    for (uint32_t m = 0; m < count; m++) {
        size_t payload;
        CHECK(models[m].max_rows >= 1 && models[m].max_rows <= rows_before[m]);
        CHECK(lm_model_payload_bytes(&models[m], LM_ENCODING_TENSORS, ROWS(models[m].max_rows),
                                     &payload));
        CHECK(payload <= limits->max_request_bytes);
        CHECK(slot_of(m, models[m].max_rows) <= classes[class_count - 1].slot_bytes);
        if (models[m].max_rows < rows_before[m]) { /* one row more does not fit */
            size_t more;
            CHECK(!lm_model_payload_bytes(&models[m], LM_ENCODING_TENSORS,
                                          ROWS(models[m].max_rows + 1), &payload) ||
                  payload > limits->max_request_bytes ||
                  !lm_model_slot_bytes(&models[m], ROWS(models[m].max_rows + 1), &more) ||
                  more > classes[class_count - 1].slot_bytes);
        }
        CHECK(slots_of_at_least(slot_of(m, 1)) >=
              2ull * limits->worker_count); /* no worker waits for memory */
        /* Nor for that of a row as JSON, 22 characters a number, where that is small. */
        size_t text = 1024, room;
        for (uint32_t i = 0; i < models[m].input_count; i++)
            text += models[m].inputs[i].row_bytes / models[m].inputs[i].element_bytes * 22;
        struct lm_model as_planned = models[m]; /* before its rows were bounded */
        as_planned.max_rows = rows_before[m];
        bool fits =
            text <= limits->max_request_bytes && lm_model_text_slot_bytes(&as_planned, text, &room);
        if (fits && room <= LM_SMALL_SLOT_BYTES)
            CHECK(slots_of_at_least(room) >= 2ull * limits->worker_count);
    }
}

/* Plans for the first `count` models; when it succeeds the promises hold. */
static int plan(uint32_t count, const struct lm_slot_plan_limits *limits) {
    uint32_t rows_before[MANY];
    for (uint32_t m = 0; m < count; m++) rows_before[m] = models[m].max_rows;
    struct lm_model *pointers[MANY];
    for (uint32_t m = 0; m < count; m++) pointers[m] = &models[m];
    int code = lm_slot_plan(pointers, count, limits, classes, &class_count);
    if (code == 0) check_plan(rows_before, count, limits);
    return code;
}

static const struct lm_slot_plan_limits usual = {.arena_bytes = 256ull << 20,
                                                 .max_request_bytes = 8ull << 20,
                                                 .slot_count_max = 1024,
                                                 .worker_count = 2};

static void one_fixed_model(void) {
    CHECK_AT("one fixed model");
    make_model(0, 602112, 4000, 1);
    CHECK(plan(1, &usual) == 0);
    CHECK(classes[1].slot_bytes == slot_of(0, 1) && models[0].max_rows == 1);
    CHECK(slot_of(0, 1) >= 602112 + 4032 && slot_of(0, 1) < 602112 + 4032 + 2048); /* HTTP's head */
    CHECK(class_count > 2); /* and room for the same as JSON */
    CHECK(classes[1].slot_count == LM_SLOTS_MIN);
    make_model(0, 4, 4,
               1); /* tiny: as many as the queue holds, large enough for an error sentence */
    CHECK(plan(1, &usual) == 0);
    CHECK(classes[1].slot_bytes == slot_of(0, 1) && slot_of(0, 1) >= LM_MODEL_SLOT_BYTES_MIN);
    CHECK(classes[1].slot_count == usual.slot_count_max / 2); /* the other half is for JSON */
}

static void free_rows(void) {
    CHECK_AT("free rows");
    make_model(0, 256, 40, 64);
    CHECK(plan(1, &usual) == 0);
    CHECK(models[0].max_rows == 64); /* nothing had to be lowered */
    CHECK(classes[class_count - 1].slot_bytes >= slot_of(0, 64));
    CHECK(slots_of_at_least(slot_of(0, 64)) >= 1);
    for (uint32_t rows = 1; rows <= 64; rows *= 4) { /* 1, 4, 16, 64 */
        uint32_t found = 0;
        for (uint32_t c = 1; c < class_count; c++)
            found += classes[c].slot_bytes == slot_of(0, rows);
        CHECK_AT("the class for %u rows", rows);
        CHECK(found == 1);
    }

    struct lm_slot_plan_limits limits = usual;
    limits.max_request_bytes = 256 * 10 + 255; /* ten rows and a bit */
    make_model(0, 256, 40, 64);
    CHECK(plan(1, &limits) == 0);
    CHECK(models[0].max_rows == 10);

    limits.max_request_bytes = 256 * 10; /* exactly ten */
    make_model(0, 256, 40, 64);
    CHECK(plan(1, &limits) == 0);
    CHECK(models[0].max_rows == 10);
    limits.max_request_bytes = 256 * 10 - 1;
    make_model(0, 256, 40, 64);
    CHECK(plan(1, &limits) == 0);
    CHECK(models[0].max_rows == 9);

    limits = usual; /* memory for one row, not for the large batches */
    limits.arena_bytes = 40ull << 20;
    make_model(0, 1 << 20, 64, 4096);
    limits.max_request_bytes = UINT32_MAX;
    CHECK(plan(1, &limits) == 0);
    CHECK(models[0].max_rows >= 1 && models[0].max_rows < 40);
}

static void several_models(void) {
    CHECK_AT("several models");
    make_model(0, 256, 40, 32);
    make_model(1, 602112, 4000, 1);
    make_model(2, 150528, 4000, 8);
    make_model(3, 256, 40, 1); /* the same size as one row of the first */
    CHECK(plan(4, &usual) == 0);
    for (uint32_t m = 0; m < 4; m++) CHECK(models[m].max_rows == (m == 0 ? 32 : m == 2 ? 8 : 1));
    /* Where memory is short, the small requests' slots do not take it all. */
    struct lm_slot_plan_limits limits = usual;
    limits.arena_bytes = 20ull << 20;
    limits.max_request_bytes = 1 << 20;
    make_model(0, 50000, 40, 1);
    make_model(1, 602112, 4000, 1);
    CHECK(plan(2, &limits) == 0);
    CHECK(slots_of_at_least(slot_of(1, 1)) >= 6 * limits.worker_count);
    make_model(0, 256, 40, 32);
    make_model(1, 602112, 4000, 1);
    CHECK(plan(4, &usual) == 0);
    CHECK(slots_of_at_least(0) >
          slots_of_at_least(LM_SMALL_SLOT_BYTES + 1)); /* small requests have their own */
}

/* Refuses, and names a need that is enough, and of which one byte less is not. */
static void too_little_memory(void) {
    struct lm_slot_plan_limits limits = usual;
    unsigned long long needed = 0;
    CHECK_AT("too little arena_bytes");
    make_model(0, 602112, 4000, 1);
    make_model(1, 256, 40, 1024);
    limits.arena_bytes = 1 << 20;
    CHECK(plan(2, &limits) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "server.arena_bytes") &&
          strstr(lm_error_last(), "found 1048576"));
    CHECK(sscanf(strstr(lm_error_last(), "at least"), "at least %llu", &needed) == 1);
    CHECK(needed > limits.arena_bytes && needed < 16 << 20);
    limits.arena_bytes = needed - 1;
    CHECK(plan(2, &limits) == LUMEN_E_INVALID);
    limits.arena_bytes = needed;
    CHECK(plan(2, &limits) == 0);
    limits.arena_bytes = 0;
    CHECK(plan(2, &limits) == LUMEN_E_INVALID);
}

static void too_small_requests(void) {
    struct lm_slot_plan_limits limits = usual;
    CHECK_AT("too small max_request_bytes");
    make_model(0, 256, 40, 1);
    make_model(1, 602112, 4000, 1);
    limits.max_request_bytes = 602111;
    CHECK(plan(2, &limits) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "server.max_request_bytes") &&
          strstr(lm_error_last(), "model-1"));
    CHECK(strstr(lm_error_last(), "602112") && strstr(lm_error_last(), "602111"));
    limits.max_request_bytes = 602112;
    CHECK(plan(2, &limits) == 0);
}

/* rgb8 pixels and outputs of unknown shape need room besides the tensors. */
static void other_room(void) {
    CHECK_AT("rgb8 and unknown outputs");
    make_model(0, 602112, 4000, 1);
    models[0].input_plan.has_rgb8 = true;
    models[0].input_plan.rgb8.height = models[0].input_plan.rgb8.width = 224;
    CHECK(plan(1, &usual) == 0);
    CHECK(classes[1].slot_bytes == 602112 + 4032 + 150528 + text_of(0));
    make_model(0, 64, 0, 1);
    models[0].outputs[0].shape_known = models[0].outputs_known = false;
    models[0].max_output_bytes = 100000;
    CHECK(plan(1, &usual) == 0);
    CHECK(classes[1].slot_bytes == 64 + 100032 + text_of(0));
    models[0].max_output_bytes = SIZE_MAX; /* what is larger is beside the slots (spill.h) */
    CHECK(plan(1, &usual) == 0);
    CHECK(classes[1].slot_bytes == 64 + LM_OUTPUT_BYTES + text_of(0));
}

/* The room for a reply's numbers as text grows with the rows, for a class with its label. */
static void room_for_texts(void) {
    struct lm_model *model = &models[0];
    CHECK_AT("room for texts");
    make_model(0, 400, 40, 8);
    model->inputs[0].element_bytes = model->outputs[0].element_bytes = 4;
    model->inputs[0].dtype = model->outputs[0].dtype = ORT_FLOAT;
    size_t one = lm_model_reply_values_bytes(model, ROWS(1), 1);
    CHECK(one % LM_SLOT_ALIGN == 0 && one >= 10 * 16); /* -1.1754944e-38 and a comma */
    CHECK(lm_model_reply_values_bytes(model, ROWS(5), 1) - one == 4 * 10 * 16);
    model->outputs[0].rows_free = false;
    CHECK(lm_model_reply_values_bytes(model, ROWS(5), 1) == one);
    model->outputs[0].shape_known = false;
    model->max_output_bytes = 4096;
    size_t unknown = lm_model_reply_values_bytes(model, ROWS(1), 1);
    CHECK(unknown - one >= (1024 - 10) * 16 - LM_SLOT_ALIGN);
    CHECK(unknown - one <= (1024 - 10) * 16 + LM_SLOT_ALIGN);
    model->labels.bytes_max = 1000;
    CHECK(lm_model_class_text_bytes(model) == 128 + 7 * 1000);
}

/* A body of so much text has at most one row per two characters of a number, per one of a byte. */
static void room_for_bodies(void) {
    static const struct {
        size_t text_bytes, element_bytes;
        uint32_t rows;
    } cases[] = {{1, 4, 1},     {399, 4, 1}, {400, 4, 2}, {1599, 4, 7}, {1600, 4, 8},
                 {99999, 4, 8}, {400, 8, 2}, {100, 1, 1}, {399, 1, 3},  {400, 1, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t found = 0, text = cases[i].text_bytes;
        make_model(0, 100 * cases[i].element_bytes, 40, 8);
        models[0].inputs[0].element_bytes = cases[i].element_bytes;
        models[0].input_count = 2; /* as many elements again: two inputs' text in one body */
        models[0].inputs[1] = models[0].inputs[0];
        CHECK_AT("a body of %zu bytes", text);
        uint32_t rows = cases[i].rows > 1 ? cases[i].rows / 2 : 1;
        if (text == 99999) rows = 8;
        CHECK(lm_model_text_slot_bytes(&models[0], text, &found));
        CHECK(found == slot_of(0, rows) + lm_align_up(text + LM_SLOT_ALIGN, LM_SLOT_ALIGN) +
                           lm_model_reply_values_bytes(&models[0], ROWS(rows), 1));
        models[0].input_count = 1;
        CHECK(lm_model_text_slot_bytes(&models[0], text, &found));
        CHECK(found == slot_of(0, cases[i].rows) +
                           lm_align_up(text + LM_SLOT_ALIGN, LM_SLOT_ALIGN) +
                           lm_model_reply_values_bytes(&models[0], ROWS(cases[i].rows), 1));
    }
}

static size_t body_of(uint32_t index, size_t text) {
    size_t bytes = 0;
    CHECK(lm_model_text_slot_bytes(&models[index], text, &bytes));
    return bytes;
}

/* One class for each size, and in it as many slots as are of use; where memory is short each class
 * takes its share of what is left. */
static void exact_classes(void) {
    struct lm_slot_plan_limits limits = {.arena_bytes = 256ull << 20,
                                         .max_request_bytes = 65536,
                                         .slot_count_max = 1024,
                                         .worker_count = 3};
    unsigned long long needed = 0;
    make_model(0, 200, 40, 1);
    models[0].inputs[0].element_bytes = 4;
    models[0].input_count = 2;
    models[0].inputs[1] =
        (struct lm_tensor){.rank = 1, .shape_known = true, .element_bytes = 8, .row_bytes = 1600};
    /* 50 numbers and 200, of 22 characters each. */
    const size_t text = 1024 + 250 * 22, sizes[] = {slot_of(0, 1), body_of(0, text),
                                                    body_of(0, 4 * text), body_of(0, 65536)};
    CHECK_AT("exact classes");
    CHECK(plan(1, &limits) == 0 && class_count == 5);
    for (uint32_t c = 0; c < 4; c++) {
        CHECK_AT("class %u of %llu bytes, expected %zu", c,
                 (unsigned long long)classes[c + 1].slot_bytes, sizes[c]);
        CHECK(classes[c + 1].slot_bytes == sizes[c]);
        CHECK(classes[c + 1].slot_count == (c < 2 ? 512 : 3)); /* JSON of one row is common, too */
    }
    limits.arena_bytes = 1;
    CHECK(plan(1, &limits) == LUMEN_E_INVALID);
    CHECK(sscanf(strstr(lm_error_last(), "at least"), "at least %llu", &needed) == 1);
    /* Six of those for one row, and the replies: the larger bodies need not be. */
    CHECK(needed == LM_REPLY_SLOTS * LM_REPLY_SLOT_BYTES + 6 * (sizes[0] + sizes[1]));
    limits.arena_bytes = needed;
    CHECK(plan(1, &limits) == 0 && class_count == 3);
    CHECK(classes[1].slot_count == 6 && classes[2].slot_count == 6);
    needed += sizes[2] + sizes[3];
    limits.arena_bytes = needed - 1;
    CHECK(plan(1, &limits) == 0 && class_count == 4);
    for (uint64_t extra = 0; extra < 2000000; extra += 99991) {
        uint64_t left = extra;
        uint32_t counts[] = {6, 6, 1, 1};
        for (uint32_t c = 0; c < 4; c++) {
            uint64_t share = c < 2 ? left / (4 - c) : left, most = c < 2 ? 512 - 6 : 3 - 1;
            uint64_t more = share / sizes[c] < most ? share / sizes[c] : most;
            counts[c] += (uint32_t)more;
            left -= more * sizes[c];
        }
        limits.arena_bytes = needed + extra;
        CHECK(plan(1, &limits) == 0 && class_count == 5);
        for (uint32_t c = 0; c < 4; c++) {
            CHECK_AT("class %u with %llu bytes more", c, (unsigned long long)extra);
            CHECK(classes[c + 1].slot_count == counts[c]);
        }
    }
}

/* Slots above 64 KiB: 32 a worker, at least 64, at most what the queue holds, at least two a
 * worker. */
static void large_slots(void) {
    static const struct {
        uint32_t workers, queue, slots;
    } cases[] = {{1, 1024, 64}, {2, 1024, 64}, {3, 1024, 96}, {3, 50, 50}, {3, 4, 6}};
    struct lm_slot_plan_limits limits = usual;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_AT("large slots of %u workers and a queue of %u", cases[i].workers, cases[i].queue);
        limits.worker_count = cases[i].workers;
        limits.slot_count_max = cases[i].queue;
        make_model(0, 602112, 4000, 1);
        CHECK(plan(1, &limits) == 0 && classes[1].slot_bytes == slot_of(0, 1));
        CHECK(classes[1].slot_count == cases[i].slots);
    }
    /* From the last small size on. */
    for (uint32_t more = 0; more < 2; more++) {
        limits = usual;
        limits.max_request_bytes = 65536;
        make_model(0, 64, 64, 1);
        size_t input = LM_SMALL_SLOT_BYTES - slot_of(0, 1) + 64 + more * 64;
        make_model(0, input, 64, 1);
        CHECK(slot_of(0, 1) == LM_SMALL_SLOT_BYTES + more * 64);
        CHECK(plan(1, &limits) == 0 && classes[1].slot_bytes == slot_of(0, 1));
        CHECK(classes[1].slot_count == (more ? 64 : 1024));
    }
    /* One size for one row of one model and for four of another: as many as for one row. */
    limits = usual;
    limits.max_request_bytes = 300000;
    make_model(0, 65536, 64, 4);
    make_model(1, 4 * 65536, 4 * 64, 1);
    CHECK(slot_of(0, 4) == slot_of(1, 1));
    CHECK(plan(2, &limits) == 0 && classes[2].slot_bytes == slot_of(1, 1));
    CHECK(classes[1].slot_count == 64 && classes[2].slot_count == 64);
}

/* More sizes than classes: the closest are joined, and still every model is served. */
static void many_models(uint64_t *random) {
    struct lm_slot_plan_limits limits = usual;
    CHECK_AT("many models");
    for (uint32_t m = 0; m < MODELS; m++) make_model(m, 1000 + 7919 * m, 64, m % 3 ? 1 : 16);
    CHECK(plan(MODELS, &limits) == 0);
    CHECK(class_count == LUMEN_SLOT_CLASSES_MAX);
    for (uint32_t m = 0; m < MANY; m++) make_model(m, 1000 + 61 * m, 64, m % 3 ? 1 : 16);
    CHECK(plan(MANY, &limits) == 0); /* more sizes than there is a list for */
    CHECK(class_count == LUMEN_SLOT_CLASSES_MAX);
    for (uint32_t m = 0; m < MODELS; m++) make_model(m, 4096, 64, 1); /* all alike */
    CHECK(plan(MODELS, &limits) == 0);
    CHECK(class_count < LUMEN_SLOT_CLASSES_MAX);
    for (uint32_t turn = 0; turn < 300; turn++) {
        uint32_t count = 1 + check_below(random, MODELS);
        CHECK_AT("random models, turn %u, %u of them", turn, count);
        for (uint32_t m = 0; m < count; m++) {
            size_t input = 1 + check_below(random, 1u << check_below(random, 21));
            make_model(m, input, 1 + check_below(random, 1u << check_below(random, 16)),
                       check_below(random, 2) ? 1 : 1 + check_below(random, LM_ROWS_MAX));
        }
        limits = (struct lm_slot_plan_limits){
            .arena_bytes = 1ull << (16 + check_below(random, 16)),
            .max_request_bytes = 1 + check_below(random, 1u << (16 + check_below(random, 14))),
            .slot_count_max = 2u << check_below(random, 14),
            .worker_count = 1 + check_below(random, LUMEN_WORKERS_MAX)};
        int code = plan(count, &limits);
        CHECK(code == 0 || code == LUMEN_E_INVALID);
    }
}

/* So many batch sizes that the table of wanted sizes is full before the last model's turn. */
static void many_batch_sizes(void) {
    struct lm_slot_plan_limits limits = {.arena_bytes = 1ull << 30,
                                         .max_request_bytes = UINT32_MAX,
                                         .slot_count_max = 1024,
                                         .worker_count = 64};
    CHECK_AT("many batch sizes");
    for (uint32_t m = 0; m + 1 < MODELS; m++) make_model(m, 1, 1, UINT32_MAX);
    make_model(MODELS - 1, 1 << 20, 64, 1);
    CHECK(plan(MODELS, &limits) == 0);
}

/* Models whose slots overflow a size: refused in words, not by a crash. */
static void overflowing_models(void) {
    struct lm_slot_plan_limits limits = usual;
    CHECK_AT("two inputs that overflow together");
    make_model(0, SIZE_MAX / 2 + 1, 64, 1);
    models[0].input_count = 2;
    models[0].inputs[1] = models[0].inputs[0];
    CHECK(plan(1, &limits) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "model-0"));
    CHECK_AT("slots that overflow when multiplied by the workers");
    make_model(0, 64, (size_t)1 << 58, 1);
    limits.worker_count = 32; /* 64 slots of 2^58 bytes are 2^64 */
    CHECK(plan(1, &limits) == LUMEN_E_INVALID);
    CHECK_AT("one row's slot overflows");
    make_model(0, 64, SIZE_MAX - 64, 1);
    CHECK(plan(1, &limits) < 0);
}

int main(void) {
    no_models();
    uint64_t random = check_seed();
    one_fixed_model();
    free_rows();
    several_models();
    too_little_memory();
    too_small_requests();
    other_room();
    room_for_texts();
    room_for_bodies();
    exact_classes();
    large_slots();
    many_models(&random);
    many_batch_sizes();
    overflowing_models();
    return check_finish("test_slot_plan");
}
