/* test_model_file.c: files that are no ONNX models are told by their first bytes, and ONNX
 * Runtime's messages are shortened. Every input ends at an unreadable page. */
#include "base/error.h"
#include "check.h"
#include "onnx/model_file.h"
#include "onnx/refusal.h"

static struct check_guard guard;

static const char *problem_of(const void *bytes, size_t count) {
    uint8_t *at = check_guard_tail(&guard, count);
    memcpy(at, bytes, count);
    return lm_model_file_problem(at, count);
}

static bool hides(const void *bytes, size_t count, const char *input) {
    uint8_t *at = check_guard_tail(&guard, count);
    memcpy(at, bytes, count);
    return lm_model_file_hides_shape(at, count, input);
}

static void kinds(void) {
    static const struct {
        const char *begin;
        size_t bytes;
        const char *says;
    } files[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", 56, "Git LFS pointer"},
        {"<!DOCTYPE html>\n<html>", 22, "HTML or XML page"},
        {"\n\n  <html>", 10, "HTML or XML page"},
        {"PK\003\004\024\0\0\0", 8, "zip archive"},
        {"\200\004\225\012\0\0\0", 7, "pickle"},
        {"\200\002}q", 4, "pickle"},
        {"\200\003}q", 4, "pickle"},
        {"\200\005\225", 3, "pickle"},
        {"\037\213\010\0", 4, "gzip"},
        {"\037\213", 2, "gzip"}, /* cut behind what tells it */
        {"GGUF", 4, "GGUF"},
        {"\0\0\0\0TFL3", 8, "TensorFlow Lite"},
        {"\3757zXZ\0", 6, "xz"},
        {"\050\265\057\375\0", 5, "zstd"},
        {"BZh91AY", 7, "bzip2"},
        {"\211HDF\r\n\032\n", 8, "HDF5"},
        {"\034\0\0\0TFL3\0\0", 10, "TensorFlow Lite"},
        {"GGUF\3\0\0\0", 8, "GGUF"},
        {"\6\0\0\0\0\0\0\0{\"a\":1", 14, "safetensors"},
        {"\0\0\0\0\0\0", 6, "begins with zeros"},
        {"{\"a\": 1}", 8, "is a text"},
        {"a", 1, "is a text"},
        {"\010\010\072\177abc", 7, "cut short"},
        {"\010", 1, "cut short"},
        {"", 0, "is empty"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        CHECK_AT("%s", files[i].says);
        const char *problem = problem_of(files[i].begin, files[i].bytes);
        CHECK(problem && strstr(problem, files[i].says));
    }
    char tar[512] = "name";
    memcpy(tar + 257, "ustar", 5);
    const char *problem = problem_of(tar, sizeof tar);
    CHECK(problem && strstr(problem, "tar archive"));
    problem = problem_of(tar, 262);
    CHECK(problem && strstr(problem, "tar archive"));
    problem = problem_of(tar, 261);
    CHECK(!problem || !strstr(problem, "tar archive"));
    /* The length of a safetensors header is within the file, up to its last byte. */
    problem = problem_of("\6\0\0\0\0\0\0\0{\"a\":1", 14);
    CHECK(problem && strstr(problem, "safetensors"));
    problem = problem_of("\2\0\0\0\0\0\0\0{}", 10);
    CHECK(problem && strstr(problem, "safetensors"));
    CHECK(problem_of("\1\0\0\0\0\0\0\0{", 9) == NULL); /* too short for a header */
    problem = problem_of("\7\0\0\0\0\0\0\0{\"a\":1", 14);
    CHECK(problem == NULL);
    CHECK(problem_of("ustar", 5) && strstr(problem_of("ustar", 5), "is a text"));
    /* A whole message, and bytes of no form known: nothing is claimed. */
    CHECK(problem_of("\010\010\022\001a", 5) == NULL);
    CHECK(problem_of("\377\376\1\2", 4) == NULL);
    CHECK(problem_of("text\177", 5) == NULL && problem_of("text~\t\r\n", 8) != NULL);
    CHECK(problem_of("text\037", 5) == NULL);
}

/* ir_version 8; graph with the inputs a (with a shape), b (without one) and c (no type at all). */
static const char model[] = "\010\010"
                            "\072\041"
                            "\132\017\012\001\141\022\012\012\010\010\001\022\004\012\002\010\001"
                            "\132\011\012\001\142\022\004\012\002\010\001"
                            "\132\003\012\001\143";

/* Fields of every kind are passed over: here a number of 32 bits, of 64, of several bytes, a text.
 */
static const char *const passed_over[] = {"\155\1\2\3\4", "\151\1\2\3\4\5\6\7\10",
                                          "\150\377\377\377\377\377\377\377\377\377\1", "\152\3abc",
                                          "\202\1\1x"};

/* An input whose type comes before its name. */
static void type_before_name(void) {
    static const char turned[] = "\010\010"
                                 "\072\013\132\011\022\004\012\002\010\001\012\001\142";
    CHECK_AT("a type before its name");
    CHECK(hides(turned, sizeof turned - 1, "b") && !hides(turned, sizeof turned - 1, "a"));
}

static void kinds_of_fields(void) {
    for (size_t k = 0; k < sizeof passed_over / sizeof passed_over[0]; k++) {
        uint8_t longer[128];
        size_t count = strlen(passed_over[k]);
        CHECK_AT("kind %zu", k);
        memcpy(longer, model, 2);
        memcpy(longer + 2, passed_over[k], count);
        memcpy(longer + 2 + count, model + 2, sizeof model - 3);
        CHECK(hides(longer, count + sizeof model - 1, "b"));
        CHECK(!hides(longer, count + sizeof model - 1, "a"));
        CHECK(problem_of(longer, 2 + count) == NULL); /* whole */
        const char *problem = problem_of(longer, 1 + count);
        CHECK(problem && strstr(problem, "cut short"));
    }
    CHECK(problem_of("\010\010\153", 3) != NULL && problem_of("\010\010\154", 3) != NULL);
}

static void shapes(uint64_t *random) {
    size_t count = sizeof model - 1;
    uint8_t changed[sizeof model];
    CHECK(!hides(model, count, "a"));
    CHECK(hides(model, count, "b"));
    CHECK(!hides(model, count, "c"));
    CHECK(!hides(model, count, "bb"));
    CHECK(!hides(model, count, ""));
    for (size_t cut = 0; cut < count; cut++) {
        (void)hides(model, cut, "b");
        (void)problem_of(model, cut);
    }
    for (int i = 0; i < 100000; i++) {
        memcpy(changed, model, count);
        for (uint32_t n = 1 + check_below(random, 3); n > 0; n--)
            changed[check_below(random, (uint32_t)count)] = (uint8_t)check_random(random);
        (void)hides(changed, count, "b");
        (void)problem_of(changed, count);
    }
}

static void trims(void) {
    static const char *const cases[][2] = {
        {"nothing of it", "nothing of it"},
        {"failed:/src/core/model.cc:256 ns::Model::Model(ns::P&&, const f::g<void (int)>&) Bad "
         "version: 99",
         "failed:Bad version: 99"},
        {"/src/a.h:46 void ns::check(const m<s, int>&, bool) const Opset 99", "Opset 99"},
        {"Error: utils.cc:461 CheckPath no such file: \"x\"", "Error: no such file: \"x\""},
        {"see model.cc:x and a.h: b", "see model.cc:x and a.h: b"},
        {"a.cc:1 f one b.cc:22 g two", "one two"},
        {"x.cc:1 f a.cc:2 g b", "b"},
        {"x.h:1 ns::f(int)a.h:2 g b", "b"},
        {"a.cc:1 f", "f"},
        {"see a.cc:12, and b.h:3", "see a.cc:12, and b.h:3"},
        {"a.cc:1 ", ""},
        {"a.cc:1 x::y(((", "x::y((("},
        {"a.cc:", "a.cc:"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *at = (char *)check_guard_tail(&guard, strlen(cases[i][0]) + 1);
        memcpy(at, cases[i][0], strlen(cases[i][0]) + 1);
        lm_refusal_trim(at);
        CHECK_AT("%s -> %s", cases[i][0], at);
        CHECK(strcmp(at, cases[i][1]) == 0);
    }
}

/* An error's text, and the end of the reason that is made of it. */
static const char *const reasons_of[][2] = {
    /* Lumen's own sentences lose the path alone. */
    {"PATH: expected a regular, non-empty file", "expected a regular, non-empty file"},
    {"PATHS: expected", "PATHS: expected"},
    {"input 'x': dimension 1 is free.", "input 'x': dimension 1 is free."},
    {"input 'IR version': it is", "input 'IR version': it is"},
    {"loading: ONNX Runtime says: nothing known. \r\n", "ONNX Runtime says: nothing known"},
    {"loading: ONNX Runtime says: one\ntwo\r\nthree", "ONNX Runtime says: one two  three"},
    {"loading: ONNX Runtime says: Load model from PATH failed:/a/b.cc:12 f Bad",
     "ONNX Runtime says: Bad"},
    {"optimising: ONNX Runtime says: it failed: Load model from", "ONNX Runtime says: it failed: "
                                                                  "Load model from"},
    {"a: ONNX Runtime says: Unsupported model IR version: 99, max 10",
     "ONNX Runtime says: Unsupported model IR version: 99, max 10 (update ONNX Runtime (pip "
     "install -U onnxruntime), or save the model with an older onnx)"},
    {"a: ONNX Runtime says: ONNX Runtime only guarantees support for models stamped with "
     "official released onnx opset versions. Opset 99.",
     "versions. Opset 99 (update ONNX Runtime (pip install -U onnxruntime), or export with a "
     "lower opset_version)"},
    {"a: ONNX Runtime says: x:My(-1) is not a registered function/op",
     "op (a custom operator; Lumen loads no libraries of operators, so express it in ONNX's "
     "own)"},
    {"a: ONNX Runtime says: No Op registered for X with domain_version of 9",
     "9 (this ONNX Runtime does not know the operator: update it, or export with another "
     "opset)"},
    {"a: ONNX Runtime says: Could not find an implementation for X(1)",
     "X(1) (its CPU part lacks this operator for this type)"},
    {"a: ONNX Runtime says: float8 is not currently registered or supported",
     "(it has no such numbers: export with float32)"},
    {"a: ONNX Runtime says: External data path does not exist: w",
     ": w (the model's weights lie in that file: copy it beside the model)"},
};

/* The last error as the reason of a refusal: without path, places and the runtime's own preface,
 * with a cure. */
static void reasons(void) {
    char path[128], reason[768];
    snprintf(path, sizeof path, "%s/m.onnx", check_temporary_directory());
    check_write_file(path, "\010\010\022\001a", 5); /* nothing is wrong with its form */
    for (size_t i = 0; i < sizeof reasons_of / sizeof reasons_of[0]; i++) {
        const char *place = strstr(reasons_of[i][0], "PATH"), *end = reasons_of[i][1];
        if (place) {
            lm_error(LUMEN_E_MODEL, "%.*s%s%s", (int)(place - reasons_of[i][0]), reasons_of[i][0],
                     path, place + 4);
        } else {
            lm_error(LUMEN_E_MODEL, "%s", reasons_of[i][0]);
        }
        lm_model_refusal(path, reason, sizeof reason);
        if (strncmp(end, "PATH", 4) == 0) {
            CHECK(strncmp(reason, path, strlen(path)) == 0);
            continue;
        }
        CHECK_AT("%.70s -> %.70s", reasons_of[i][0], reason);
        size_t length = strlen(reason);
        CHECK(length >= strlen(end) && strcmp(reason + length - strlen(end), end) == 0);
        bool whole =
            strncmp(end, "ONNX Runtime says", 17) == 0 || !strstr(reasons_of[i][0], "says: ");
        CHECK(!whole || length == strlen(end));
        CHECK(whole || strncmp(reason, "ONNX Runtime says: ", 19) == 0);
    }
}

/* The file's form explains more than the runtime's message. */
static void reasons_by_form(void) {
    char path[128], other[128], reason[768], small[40];
    const char *directory = check_temporary_directory();
    snprintf(path, sizeof path, "%s/m.onnx", directory);
    snprintf(other, sizeof other, "%s/page.onnx", directory);
    check_write_file(path, "\010\010\022\001a", 5); /* nothing is wrong with its form */
    check_write_file(other, "<!DOCTYPE html>", 15);
    CHECK_AT("a page");
    lm_error(LUMEN_E_MODEL, "loading: ONNX Runtime says: Protobuf parsing failed");
    lm_model_refusal(other, reason, sizeof reason);
    CHECK(strncmp(reason, "it is an HTML or XML page", 25) == 0);
    lm_error(LUMEN_E_MODEL, "input 'x': its size overflows");
    lm_model_refusal(other, reason, sizeof reason);
    CHECK(strcmp(reason, "input 'x': its size overflows") == 0);
    lm_error(LUMEN_E_MODEL, "loading: ONNX Runtime says: IR version and much more than fits here");
    memset(small, '#', sizeof small);
    lm_model_refusal(path, small, sizeof small - 1);
    CHECK(strlen(small) < sizeof small - 1 && small[sizeof small - 1] == '#');
}

int main(void) {
    uint64_t random = check_seed();
    check_watchdog(120, "a message that is trimmed");
    check_guard_open(&guard, 1 << 12);
    kinds();
    kinds_of_fields();
    type_before_name();
    shapes(&random);
    trims();
    reasons();
    reasons_by_form();
    check_guard_close(&guard);
    return check_finish("test_model_file");
}
