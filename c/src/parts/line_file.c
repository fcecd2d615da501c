/* line_file.c: see line_file.h. */
#include "parts/line_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum { ROOM_MS = 100 };

/* ---- opening ---- */

/* Refuses a file whose columns differ from ours: one file must not mix two kinds of rows. */
static int check_header(const struct lm_line_file *file) {
    char seen[LM_LINE_BYTES_MAX];
    size_t bytes = strlen(file->header);
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, seen, bytes);
    int code = errno;
    if (fd >= 0) close(fd);
    if (got < 0)
        return lm_error_errno(LUMEN_E_IO, code, "%s: cannot read %s", file->setting, file->path);
    if ((size_t)got == bytes && memcmp(seen, file->header, bytes) == 0) return 0;
    return lm_error(LUMEN_E_INVALID,
                    "%s: expected no file, or one with the same columns, found other ones in %s: "
                    "move it away",
                    file->setting, file->path);
}

static int open_path(const struct lm_line_file *file, int *fd_out, bool *is_regular_out) {
    struct stat status = {0};
    int fd = strcmp(file->path, "-") == 0
                 ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                 : open(file->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
    if (fd < 0 || fstat(fd, &status) != 0) {
        int code = errno;
        if (fd >= 0) close(fd);
        return lm_error_errno(LUMEN_E_IO, code, "%s: cannot write %s", file->setting, file->path);
    }
    *is_regular_out = S_ISREG(status.st_mode);
    int code = file->header && *is_regular_out && status.st_size > 0 ? check_header(file) : 0;
    if (code) {
        close(fd);
        return code;
    }
    *fd_out = fd;
    return 0;
}

int lm_line_file_open(struct lm_line_file *file, const char *setting, const char *path,
                      const char *header) {
    *file = (struct lm_line_file){.setting = setting, .path = path, .header = header, .fd = -1};
    int code = open_path(file, &file->fd, &file->is_regular);
    if (code) file->setting = NULL;
    return code;
}

int lm_line_file_reopen(struct lm_line_file *file) {
    int fd;
    bool is_regular;
    int code = open_path(file, &fd, &is_regular);
    if (code) return code;
    close(file->fd);
    file->fd = fd;
    file->is_regular = is_regular;
    return 0;
}

void lm_line_file_close(struct lm_line_file *file) {
    if (file->setting) close(file->fd);
    file->setting = NULL;
}

/* ---- writing ---- */

/* Whether a write would not wait; false once the thread is to end. */
static bool has_room(const struct lm_line_file *file, const lm_atomic_u32 *stop) {
    struct pollfd there = {.fd = file->fd, .events = POLLOUT};
    if (file->is_regular) return true;
    while (poll(&there, 1, ROOM_MS) <= 0) {
        /* relaxed: only ends the waiting */
        if (lm_load_relaxed_u32(stop)) return false;
    }
    return true;
}

/* Returns 0, or the errno. */
static int write_all(const struct lm_line_file *file, const char *text, size_t bytes,
                     const lm_atomic_u32 *stop) {
    while (bytes > 0) {
        /* A pipe with any room takes so much without waiting. */
        size_t part = file->is_regular || bytes < PIPE_BUF ? bytes : PIPE_BUF;
        if (!has_room(file, stop)) return ETIMEDOUT;
        ssize_t wrote = write(file->fd, text, part);
        if (wrote < 0 && errno != EINTR && errno != EAGAIN) return errno;
        if (wrote <= 0) continue;
        text += wrote;
        bytes -= (size_t)wrote;
    }
    return 0;
}

/* An empty file gets its header: a new one, and one that was cut. */
static int write_header(struct lm_line_file *file, const lm_atomic_u32 *stop) {
    struct stat status;
    bool wants = !file->has_header;
    if (!file->header) return 0;
    if (file->is_regular) wants = fstat(file->fd, &status) == 0 && status.st_size == 0;
    int failed = wants ? write_all(file, file->header, strlen(file->header), stop) : 0;
    file->has_header = !failed;
    return failed;
}

bool lm_line_file_flush(struct lm_line_file *file, const lm_atomic_u32 *stop) {
    int failed = write_header(file, stop);
    if (!failed && file->used == 0) return false;
    if (!failed) failed = write_all(file, file->buffer, file->used, stop);
    if (failed) file->lost += file->lines;
    file->used = file->lines = 0;
    if ((failed != 0) == file->fails) return false;
    file->fails = failed != 0;
    if (failed) {
        lm_error_errno(LUMEN_E_IO, failed, "%s: cannot write %s; lines are lost until it can be",
                       file->setting, file->path);
    } else {
        lm_error(LUMEN_E_IO, "%s: %s is written again, after %llu lines were lost", file->setting,
                 file->path, (unsigned long long)file->lost);
    }
    return true;
}

bool lm_line_file_add(struct lm_line_file *file, const char *line, size_t bytes,
                      const lm_atomic_u32 *stop) {
    LM_ASSERT(bytes > 0 && bytes <= LM_LINE_BYTES_MAX);
    bool news = file->used + bytes > sizeof file->buffer && lm_line_file_flush(file, stop);
    memcpy(file->buffer + file->used, line, bytes);
    file->used += bytes;
    file->lines++;
    return news;
}
