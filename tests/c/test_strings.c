/* test_strings.c: strings from the wire to ONNX Runtime and back: the walk over lengths that a
 * client chose, tensors that are used again, what they take of the allocator, slots. LUMEN_ORT
 * names libonnxruntime.so. */
#include "base/error.h"
#include "base/native_codec.h"
#include "formats/text_slots.h"
#include "models/binding.h"
#include "models/load.h"
#include "models/model.h"
#include "models/runner.h"
#include "models/strings.h"
#include "onnx_graph.h"

enum { WIRE_MAX = 1 << 15 };

static struct lm_ort ort;
static struct lm_model model;
static char path[128], why[LM_TEXT_BYTES_MAX];
static struct check_guard guard;

/* Strings on the wire, one after the other. */
struct wire {
    size_t used;
    uint8_t bytes[WIRE_MAX];
};

static void put(struct wire *wire, const void *text, uint32_t bytes) {
    CHECK(wire->used + 4 + bytes <= sizeof wire->bytes);
    memcpy(wire->bytes + wire->used, &bytes, 4);
    memcpy(wire->bytes + wire->used + 4, text, bytes);
    wire->used += 4 + bytes;
}

static struct wire wire_of(const char *const *texts, size_t count) {
    struct wire wire = {0};
    for (size_t i = 0; i < count; i++) put(&wire, texts[i], (uint32_t)strlen(texts[i]));
    return wire;
}

/* The walk over `used` bytes that end at an unreadable page. */
static bool walks(const struct wire *wire, size_t used, size_t count) {
    uint8_t *copy = check_guard_tail(&guard, used);
    const uint8_t *at = copy;
    memcpy(copy, wire->bytes, used);
    why[0] = '\0';
    bool fit = lm_strings_walk("x", &at, copy + used, count, why, sizeof why);
    CHECK(fit == (why[0] == '\0') && at >= copy && at <= copy + used);
    return fit;
}

static void walk(uint64_t *random) {
    static const char *const texts[] = {"", "a", "two words", "", "\xc3\xa9"};
    struct wire wire = wire_of(texts, 5);
    CHECK(walks(&wire, wire.used, 5) && walks(&wire, wire.used, 2) && walks(&wire, 0, 0));
    for (size_t used = 0; used < wire.used; used++) {
        CHECK_AT("cut to %zu bytes", used);
        CHECK(!walks(&wire, used, 5));
    }
    CHECK(!walks(&wire, wire.used, 6));
    CHECK(strcmp(why, "input 'x': expected 6 strings, found 5 and 0 bytes more") == 0);
    memcpy(wire.bytes + 4, &(uint32_t){200}, 4);
    CHECK(!walks(&wire, wire.used, 5));
    CHECK(strcmp(why, "input 'x', string 1: expected the 200 bytes of its length, found 24") == 0);
    memcpy(wire.bytes, &(uint32_t){UINT32_MAX}, 4);
    CHECK(!walks(&wire, wire.used, 5));
    CHECK(strcmp(why, "input 'x', string 0: expected at most 1048576 bytes, found a length of "
                      "4294967295") == 0);
    for (uint32_t round = 0; round < 20000; round++) {
        wire.used = check_below(random, 40);
        for (size_t b = 0; b < wire.used; b++) wire.bytes[b] = (uint8_t)check_below(random, 5) % 4;
        walks(&wire, wire.used, check_below(random, 12));
    }
}

/* t and u are strings, x numbers between them: an echo of all, or lengths that no input has. */
static void begin_model(const lumen_model_config *config) {
    graph_begin();
    graph_input("t", ORT_STRING, "n,2");
    graph_input("x", ORT_FLOAT, "n,3");
    graph_input("u", ORT_STRING, "n");
    graph_node("Identity", "t", "a");
    graph_node("Identity", "u", "c");
    graph_node("Neg", "x", "b");
    graph_output("a", ORT_STRING, "n,2");
    graph_output("b", ORT_FLOAT, "n,3");
    graph_output("c", ORT_STRING, "n");
    graph_save(path);
    int code = lm_model_open(&model, &ort, config, 0, 1);
    if (code) fprintf(stderr, "%s\n", lm_error_last());
    CHECK(code == 0);
}

static struct trial {
    struct lm_slot slot;
    struct lm_layout_lists lists;
    struct lm_layout layout;
    struct lm_binding binding;
    OrtValue *values[6];
} trial;

/* A slot of exactly the size that the body needs, which lies at its end. */
static void receive(const struct wire *t, const float *x, const struct wire *u, uint32_t rows) {
    size_t body = t->used + rows * 12 + u->used;
    CHECK(lm_model_slot_bytes_with(&model, ROWS(rows), body, &trial.slot.bytes));
    trial.slot.base = check_guard_tail(&guard, trial.slot.bytes);
    lm_slot_reset(&trial.slot);
    trial.layout = lm_layout_of(&trial.lists);
    lm_model_layout(&model, &trial.slot, LM_ENCODING_STRINGS, ROWS(rows), &trial.layout);
    CHECK(!trial.layout.inputs[0] && trial.layout.inputs[1] && !trial.layout.inputs[2]);
    CHECK(!trial.layout.outputs[0] && trial.layout.outputs[1] && !trial.layout.outputs[2]);
    trial.layout.raw = lm_slot_alloc(&trial.slot, body);
    trial.layout.raw_bytes = body;
    CHECK(trial.layout.raw);
    memcpy(trial.layout.raw, t->bytes, t->used);
    memcpy(trial.layout.raw + t->used, x, rows * 12);
    memcpy(trial.layout.raw + t->used + rows * 12, u->bytes, u->used);
}

static void is_output(uint32_t output, const struct wire *expected, size_t count) {
    static uint8_t found[WIRE_MAX];
    size_t bytes = 0;
    const OrtValue *value = trial.values[3 + output];
    CHECK(lm_ort_strings_take(&ort, value, 0, count, found, expected->used, &bytes) == 0);
    CHECK(bytes == expected->used && memcmp(found, expected->bytes, bytes) == 0);
    CHECK(lm_ort_strings_take(&ort, value, 0, count, found, expected->used - 1, &bytes) ==
          LM_ORT_NO_ROOM);
    CHECK(lm_model_check_count(&ort, &model.outputs[output], value, ROWS(3)) ==
          (count == (output ? 3 : 6) ? 0 : LUMEN_E_ORT));
}

static void run(uint32_t rows, uint64_t allocs) {
    CHECK(lm_strings_check(&model, ROWS(rows), &trial.layout, why, sizeof why));
    CHECK(lm_model_bind(&model, &ort, &trial.layout, ROWS(rows), &trial.binding, trial.values) ==
          0);
    CHECK(lm_model_fill_strings(&model, &ort, &trial.layout, ROWS(rows), 0, &trial.binding,
                                trial.values) == 0);
    CHECK_AT("%llu allocations", (unsigned long long)trial.binding.string_allocs);
    CHECK(trial.binding.string_allocs == allocs);
    trial.binding.string_allocs = 0;
    CHECK(lm_model_run(&model, &ort, 0, trial.values) == 0);
}

static void drop(void) {
    for (uint32_t o = 3; o < 6; o += 2) {
        lm_ort_value_close(&ort, trial.values[o]);
        trial.values[o] = NULL;
    }
}

static void echo(void) {
    static const char *const texts[] = {"a", "", "b\xff", "longer than fifteen bytes", "x", "y"};
    static const char *const short_texts[] = {"one", "two", "three"};
    struct wire t = wire_of(texts, 6), u = wire_of(short_texts, 3);
    const float x[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (uint32_t round = 0; round < 3; round++) {
        CHECK_AT("round %u", round);
        receive(&t, x, &u, 3);
        /* Two tensors and one long string, once. */
        run(3, round == 0 ? 3 : 0);
        is_output(0, &t, 6);
        is_output(2, &u, 3);
        CHECK(((float *)trial.layout.outputs[1])[8] == -9);
        drop();
    }
    CHECK(trial.binding.string_bytes >= 9 * LM_ORT_STRING_BYTES + 25);
    /* One row is another shape: new tensors. */
    receive(&t, x, &u, 1);
    trial.layout.raw_bytes = 4 + 1 + 4 + 12 + 4 + 3;
    memmove(trial.layout.raw + 9, trial.layout.raw + t.used, 12);
    memcpy(trial.layout.raw + 21, u.bytes, 7);
    run(1, 2);
    drop();
    lm_model_unbind(&model, &ort, &trial.binding, trial.values);
}

static void refused(const char *says) {
    CHECK(!lm_strings_check(&model, ROWS(2), &trial.layout, why, sizeof why));
    CHECK_AT("found: %.140s", why);
    CHECK(strcmp(why, says) == 0);
}

/* Bodies that do not fit: in one piece, and input by input. */
static void bad_bodies(void) {
    static const char *const texts[] = {"a", "b", "c", "d"};
    struct wire t = wire_of(texts, 4), u = wire_of(texts, 2);
    const float x[6] = {0};
    receive(&t, x, &u, 2);
    CHECK(lm_strings_check(&model, ROWS(2), &trial.layout, why, sizeof why));
    trial.layout.raw_bytes--;
    refused("input 'u', string 1: expected the 1 bytes of its length, found 0");
    trial.layout.raw_bytes = t.used + 23;
    refused("input 'x': expected 24 bytes, found 23");
    trial.layout.raw_bytes = 7;
    refused("input 't': expected 4 strings, found 1 and 2 bytes more");
    put(&u, "", 0);
    receive(&t, x, &u, 2);
    refused("payload: expected 54 bytes for its inputs, found 58");
    trial.layout.inputs[0] = trial.layout.raw;
    trial.layout.string_bytes[0] = t.used;
    trial.layout.inputs[2] = trial.layout.raw + t.used + 24;
    trial.layout.string_bytes[2] = u.used;
    trial.layout.raw = NULL;
    refused("input 'u': expected 2 strings, found 4 bytes behind them");
    trial.layout.string_bytes[2] -= 4;
    CHECK(lm_strings_check(&model, ROWS(2), &trial.layout, why, sizeof why));
    trial.layout.string_bytes[0]--;
    refused("input 't', string 3: expected the 1 bytes of its length, found 0");
}

static size_t loose(uint32_t rows, size_t strings) {
    size_t bytes = 0;
    CHECK(lm_model_loose_bytes(&model, ROWS(rows), strings, &bytes));
    return bytes;
}

/* Room for outputs: 64 bytes for each string and what came, a label's length, or the setting. */
static void rooms(lumen_model_config *config) {
    size_t least = 0, more = 0;
    CHECK(model.string_inputs == 2 && model.string_outputs == 2 && model.outputs_known);
    CHECK(loose(2, 0) == (4 + 2) * 64 && loose(2, 100) == (4 + 2) * 64 + 128);
    CHECK(lm_model_slot_bytes_with(&model, ROWS(2), 0, &least));
    CHECK(lm_model_slot_bytes_with(&model, ROWS(2), 1024, &more) && more == least + 2 * 1024);
    CHECK(lm_model_text_slot_bytes(&model, 3000, &more) && more >= 3000 + 3 * 4000);
    CHECK(lm_model_payload_bytes(&model, LM_ENCODING_STRINGS, ROWS(2), &more));
    CHECK(more == 2 * (2 * 4 + 12 + 4));
    lm_model_close(&model, &ort);
    config->max_output_bytes = 5000;
    begin_model(config);
    CHECK(loose(1, 100) == 5000 && loose(9, 100000) == 5000);
}

int main(void) {
    const char *library = getenv("LUMEN_ORT");
    uint64_t random = check_seed();
    check_guard_open(&guard, 1 << 16);
    walk(&random);
    if (CHECK_UNDER_TSAN)
        check_skip("test_strings", "ONNX Runtime is not built for ThreadSanitizer");
    if (!library || !library[0])
        check_skip("test_strings", "LUMEN_ORT does not name libonnxruntime.so");
    snprintf(path, sizeof path, "%s/m.onnx", check_temporary_directory());
    CHECK(lm_ort_open(&ort, library) == 0);
    lumen_model_config config = {
        .name = "m", .path = path, .intra_op_threads = 1, .scale = {1, 1, 1}};
    begin_model(&config);
    echo();
    bad_bodies();
    rooms(&config);
    lm_model_close(&model, &ort);
    lm_ort_close(&ort);
    check_guard_close(&guard);
    return check_finish("test_strings");
}
