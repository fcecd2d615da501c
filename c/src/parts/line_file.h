/* line_file.h: lines appended to a file, or to stdout, by a thread that may wait for them.
 *
 * A file that cannot be written (a full disk, a reader that has gone) costs lines, which are
 * counted; the first failure and its end are one sentence each. Another program may move the file
 * away and have it opened again, or cut it: every write goes to the end. */
#ifndef LM_PARTS_LINE_FILE_H
#define LM_PARTS_LINE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/atomics.h"

enum { LM_LINE_FILE_BYTES = 32 << 10, LM_LINE_BYTES_MAX = 4096 };

struct lm_line_file {
    const char *setting; /* what messages call it; NULL: not open */
    const char *path;    /* "-": stdout */
    const char *header;  /* the first line of an empty file; NULL: none */
    int fd;
    bool is_regular;
    bool has_header;
    bool fails;
    uint64_t lost; /* lines */
    size_t used;
    uint32_t lines; /* in the buffer */
    char buffer[LM_LINE_FILE_BYTES];
};

/* Opens or creates it. The strings are borrowed for good. Returns 0, LUMEN_E_IO, or LUMEN_E_INVALID
 * where there is a file with another first line. */
int lm_line_file_open(struct lm_line_file *file, const char *setting, const char *path,
                      const char *header);
/* Opens the path again, which may be a new file. On failure the old one stays. */
int lm_line_file_reopen(struct lm_line_file *file);
/* Takes a line, with its end, of at most LM_LINE_BYTES_MAX bytes; flushes first where there is no
 * room. Returns as flush does. */
bool lm_line_file_add(struct lm_line_file *file, const char *line, size_t bytes,
                      const lm_atomic_u32 *stop);
/* Writes what is buffered. A pipe that takes nothing is waited for until `*stop` is not 0. Returns
 * true when there is news: it fails from now on, or is written again; lm_error_last() says so. */
bool lm_line_file_flush(struct lm_line_file *file, const lm_atomic_u32 *stop);
void lm_line_file_close(struct lm_line_file *file);

#endif
