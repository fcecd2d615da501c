/* standalone_main.c: a fuzz target without libFuzzer: runs every file it is given, or that lies in
 * a directory it is given, and every beginning of each. Built under gcc's sanitizers. */
#include <dirent.h>
#include <sanitizer/common_interface_defs.h>

#include "fuzz.h"

static unsigned files, inputs;
static const char *path_at;
static size_t bytes_at;

/* The sanitizer reports an abort as it does its own findings: with the file, at the end. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "handle_abort=1";
}

static void say_where(void) {
    fprintf(stderr, "input: the first %zu bytes of %s\n", bytes_at, path_at);
}

static void run_file(const char *path) {
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rbe");
    if (!file) {
        perror(path);
        exit(1);
    }
    size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    path_at = path;
    size_t beginnings = count < 4096 ? count : 0;
    for (size_t first = count - beginnings; first <= count; first++, inputs++) {
        bytes_at = first;
        uint8_t *input = fuzz_copy(bytes, first);
        LLVMFuzzerTestOneInput(input, first);
        free(input);
    }
    files++;
}

int main(int argument_count, char **arguments) {
    __sanitizer_set_death_callback(say_where);
    for (int i = 1; i < argument_count; i++) {
        DIR *directory = opendir(arguments[i]);
        if (!directory) run_file(arguments[i]);
        for (struct dirent *entry; directory && (entry = readdir(directory));) {
            char path[4096];
            if (entry->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", arguments[i], entry->d_name);
            run_file(path);
        }
        if (directory) closedir(directory);
    }
    printf("%s: %u files, %u inputs\n", arguments[0], files, inputs);
    return files > 0 ? 0 : 1; /* an empty corpus is a mistake */
}
