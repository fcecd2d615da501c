/* test_labels.c: lines of text as the names of classes. */
#include "base/error.h"
#include "base/json_text.h"
#include "base/limits.h"
#include "check.h"
#include "models/labels.h"

static struct check_guard guard;

static int open_labels(struct lm_labels *labels, const char *text, size_t bytes) {
    char *at = (char *)check_guard_tail(&guard, bytes);
    memcpy(at, text, bytes);
    return lm_labels_open(labels, at, bytes);
}

static void is(const struct lm_labels *labels, uint32_t index, const char *expected) {
    uint32_t bytes = 77;
    const char *label = lm_labels_get(labels, index, &bytes);
    CHECK_AT("label %u, %s", index, expected);
    CHECK(bytes == strlen(expected) && memcmp(label, expected, bytes) == 0);
}

static void lines(void) {
    static const char *const texts[] = {"cat\ndog\n\nowl \xc3\xa9\n",
                                        "cat\r\ndog\r\n\r\nowl \xc3\xa9",
                                        "cat\ndog\r\n\nowl \xc3\xa9\r"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct lm_labels labels;
        CHECK(open_labels(&labels, texts[i], strlen(texts[i])) == 0);
        CHECK(labels.count == 4 && labels.bytes_max == 6);
        is(&labels, 0, "cat");
        is(&labels, 1, "dog");
        is(&labels, 2, "");
        is(&labels, 3, "owl \xc3\xa9");
        is(&labels, 4, "");
        is(&labels, UINT32_MAX, "");
        lm_labels_close(&labels);
        is(&labels, 0, "");
        lm_labels_close(&labels); /* twice does nothing */
    }
}

static void none(void) {
    struct lm_labels labels;
    CHECK(lm_labels_open(&labels, NULL, 5) == 0 && labels.count == 0);
    is(&labels, 0, "");
    CHECK(open_labels(&labels, "", 0) == 0 && labels.count == 0);
    is(NULL, 0, "");
    CHECK(open_labels(&labels, "\n", 1) == 0 && labels.count == 1 && labels.bytes_max == 0);
    is(&labels, 0, "");
    lm_labels_close(&labels);
}

static void refused(const char *text, size_t bytes, const char *named) {
    struct lm_labels labels;
    CHECK_AT("%.40s", named);
    CHECK(open_labels(&labels, text, bytes) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), named) && labels.count == 0 && !labels.text);
}

static void refusals(void) {
    static char text[2 * LM_LABEL_BYTES_MAX];
    refused("a\nb\tc\n", 6, "line 2: byte 1 is the control character 9");
    refused("a\n\0", 3, "control character 0");
    refused("\x7f", 1, "control character 127");
    refused("a\rb\n", 4, "line 1");
    refused("a\n\xff\n", 4, "line 2: byte 0 is not UTF-8");
    refused("\xc3", 1, "not UTF-8");
    refused("\xc3\n", 2, "not UTF-8");
    refused("\xed\xa0\x80", 3, "not UTF-8");
    memset(text, 'x', sizeof text);
    refused(text, LM_LABEL_BYTES_MAX + 1, "expected at most 1024 bytes, found 1025");
    struct lm_labels labels;
    CHECK(open_labels(&labels, text, LM_LABEL_BYTES_MAX) == 0);
    CHECK(labels.bytes_max == LM_LABEL_BYTES_MAX);
    lm_labels_close(&labels);
    CHECK(open_labels(&labels, "a\nlongest\nab\n", 13) == 0 && labels.bytes_max == 7);
    lm_labels_close(&labels);
    CHECK(lm_labels_open(&labels, text, (size_t)LM_LABELS_BYTES_MAX + 1) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "labels: expected at most 67108864 bytes, found 67108865"));
    const char *zeros =
        mmap(NULL, LM_LABELS_BYTES_MAX, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(zeros != MAP_FAILED); /* exactly as many are read, and refused for what they are */
    CHECK(lm_labels_open(&labels, zeros, LM_LABELS_BYTES_MAX) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "labels, line 1: expected at most 1024 bytes, found 67108864"));
    CHECK(munmap((void *)(uintptr_t)zeros, LM_LABELS_BYTES_MAX) == 0);
}

/* ---- the escapes that names and labels share ---- */

static void escapes(const char *text, size_t bytes, const char *expected) {
    char out[64];
    size_t written = 0, length = strlen(expected);
    CHECK_AT("%s", expected);
    CHECK(lm_json_escape(text, bytes, out, sizeof out, &written));
    CHECK(written == length && memcmp(out, expected, length) == 0);
    CHECK(lm_json_escape(text, bytes, out, length, &written));
    CHECK(length == 0 || !lm_json_escape(text, bytes, out, length - 1, &written));
}

static void all_escapes(void) {
    escapes("", 0, "");
    escapes("a\"b\\c/", 6, "a\\\"b\\\\c/");
    escapes("\0\x1f\x7f\n", 4, "\\u0000\\u001f\\u007f\\u000a");
    escapes("\xf0\x9f\x98\x80\xc3\xa9", 6, "\xf0\x9f\x98\x80\xc3\xa9");
    escapes("a\xff"
            "b\xc3",
            4,
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
    escapes("\xe2\x82", 2, "\xef\xbf\xbd\xef\xbf\xbd");
}

/* Both ends of every range of UTF-8, and the bytes beside them. */
static void utf8(void) {
    static const struct {
        const char *text;
        size_t bytes; /* of a character; 0: none begins here */
    } cases[] = {
        {"\x7f", 1},         {"\x80", 0},         {"\xbf", 0},         {"\xc1\xbf", 0},
        {"\xc2\x80", 2},     {"\xdf\xbf", 2},     {"\xc2\x7f", 0},     {"\xc2\xc0", 0},
        {"\xe0\x9f\xbf", 0}, {"\xe0\xa0\x80", 3}, {"\xec\xbf\xbf", 3}, {"\xed\x9f\xbf", 3},
        {"\xed\xa0\x80", 0}, {"\xed\xbf\xbf", 0}, {"\xee\x80\x80", 3}, {"\xef\xbf\xbf", 3},
        {"\xe1\x80\x7f", 0}, {"\xe1\x80\xc0", 0}, {"\xe1\xc0\x80", 0}, {"\xe1\x7f\x80", 0},
    };
    static const struct {
        const char *text;
        size_t bytes;
    } long_ones[] = {
        {"\xf0\x8f\xbf\xbf", 0}, {"\xf0\x90\x80\x80", 4}, {"\xf3\xbf\xbf\xbf", 4},
        {"\xf4\x8f\xbf\xbf", 4}, {"\xf4\x90\x80\x80", 0}, {"\xf5\x80\x80\x80", 0},
        {"\xf8\x88\x80\x80", 0}, {"\xff\xbf\xbf\xbf", 0}, {"\xf1\x80\x80\x7f", 0},
    };
    CHECK(lm_utf8_bytes("a", 0) == 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t length = strlen(cases[i].text);
        CHECK_AT("the character %02x %02x", (uint8_t)cases[i].text[0], (uint8_t)cases[i].text[1]);
        CHECK(lm_utf8_bytes(cases[i].text, length) == cases[i].bytes);
        if (length > 1) CHECK(lm_utf8_bytes(cases[i].text, length - 1) == 0);
    }
    for (size_t i = 0; i < sizeof long_ones / sizeof long_ones[0]; i++) {
        CHECK_AT("the long character %02x %02x", (uint8_t)long_ones[i].text[0],
                 (uint8_t)long_ones[i].text[1]);
        CHECK(lm_utf8_bytes(long_ones[i].text, 4) == long_ones[i].bytes);
        CHECK(lm_utf8_bytes(long_ones[i].text, 3) == 0);
    }
}

int main(void) {
    check_guard_open(&guard, 1 << 14);
    lines();
    none();
    refusals();
    all_escapes();
    utf8();
    check_guard_close(&guard);
    return check_finish("test_labels");
}
