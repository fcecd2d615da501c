/* refusal.c: see refusal.h. What is looked for are words of ONNX Runtime's messages:
 * one that reads otherwise in another version is shown as it is. */
#include "onnx/refusal.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "onnx/model_file.h"

static void remove_part(char *from, const char *to) {
    memmove(from, to, strlen(to) + 1);
}

/* Behind "FILE.cc:12 ", the end of the function's name or of its whole C++ signature. */
static const char *function_end(const char *at) {
    const char *open = strchr(at, '('), *scope = strstr(at, "::");
    if (!open || !scope || scope > open) {
        const char *blank = strchr(at, ' ');
        return blank ? blank + 1 : at;
    }
    int depth = 0;
    for (const char *end = open; *end; end++) {
        depth += *end == '(';
        depth -= *end == ')';
        if (depth > 0) continue;
        end++;
        if (strncmp(end, " const", 6) == 0) end += 6;
        while (*end == ' ') end++;
        return end;
    }
    return at;
}

/* Removes every "FILE<mark>12 FUNCTION ", of which `mark` is ".cc:" or ".h:". */
static void trim_places(char *text, const char *mark) {
    char *at = text;
    while ((at = strstr(at, mark))) {
        const char *end = at + strlen(mark);
        size_t digits = strspn(end, "0123456789");
        char *start = at++;
        if (digits == 0 || end[digits] != ' ') continue;
        while (start > text && start[-1] != ' ' && start[-1] != ':') start--;
        remove_part(start, function_end(end + digits + 1));
        at = start;
    }
}

void lm_refusal_trim(char *text) {
    trim_places(text, ".cc:");
    trim_places(text, ".h:");
}

/* Cuts everything up to and including `words`, where they are there. */
static void cut_through(char *text, const char *words) {
    char *at = strstr(text, words);
    if (at) remove_part(text, at + strlen(words));
}

static const struct {
    const char *words;
    const char *cure;
} cures[] = {
    {"IR version",
     "update ONNX Runtime (pip install -U onnxruntime), or save the model with an older onnx"},
    {"official released onnx opset",
     "update ONNX Runtime (pip install -U onnxruntime), or export with a lower opset_version"},
    {"is not a registered function/op",
     "a custom operator; Lumen loads no libraries of operators, so express it in ONNX's own"},
    {"No Op registered",
     "this ONNX Runtime does not know the operator: update it, or export with another opset"},
    {"construct locale", "the text is lowered by that locale: apt-get install locales, then "
                         "localedef -i en_US -f UTF-8 en_US.UTF-8"},
    {"not find an implementation", "its CPU part lacks this operator for this type"},
    {"not currently registered or supported", "it has no such numbers: export with float32"},
    {"External data path does not exist",
     "the model's weights lie in that file: copy it beside the model"},
};

/* Ends the reason without blanks and points, and adds the cure. */
static void add_cure(char *reason, size_t bytes) {
    size_t used = strlen(reason);
    while (used > 0 && strchr(" .\r\n", reason[used - 1])) used--;
    reason[used] = '\0';
    for (char *at = reason; *at; at++) {
        if (*at == '\n' || *at == '\r') *at = ' ';
    }
    for (size_t i = 0; i < sizeof cures / sizeof cures[0]; i++) {
        if (!strstr(reason, cures[i].words)) continue;
        snprintf(reason + used, bytes - used, " (%s)", cures[i].cure);
        return;
    }
}

void lm_model_refusal(const char *path, char *reason, size_t bytes) {
    struct lm_mapping file;
    snprintf(reason, bytes, "%s", lm_error_last());
    bool by_runtime = strstr(reason, "ONNX Runtime says: ") != NULL;
    if (by_runtime && lm_file_read(&file, path) == 0) {
        const char *problem = lm_model_file_problem(file.base, file.bytes);
        lm_mapping_close(&file);
        if (problem) {
            snprintf(reason, bytes, "%s", problem);
            return;
        }
    }
    size_t path_bytes = strlen(path);
    if (strncmp(reason, path, path_bytes) == 0 && strncmp(reason + path_bytes, ": ", 2) == 0)
        remove_part(reason, reason + path_bytes + 2);
    if (!by_runtime) return;
    cut_through(reason, "ONNX Runtime says: ");
    if (strncmp(reason, "Load model from ", 16) == 0) cut_through(reason, " failed:");
    lm_refusal_trim(reason);
    add_cure(reason, bytes);
    char said[1024];
    snprintf(said, sizeof said, "ONNX Runtime says: %s", reason);
    snprintf(reason, bytes, "%s", said);
}
