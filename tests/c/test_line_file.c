/* test_line_file.c: lines are appended, whatever happens to the file meanwhile; what cannot be
 * written is counted, and said once. */
#include "parts/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/error.h"
#include "check.h"

static struct lm_line_file file;
static lm_atomic_u32 stop;
static char path[128], moved[128];

static bool add(const char *line) {
    return lm_line_file_add(&file, line, strlen(line), &stop);
}

static bool flush(void) {
    return lm_line_file_flush(&file, &stop);
}

static void holds(const char *name, const char *expected) {
    char found[512] = "";
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, found, sizeof found - 1) >= 0);
    close(fd);
    CHECK_AT("expected '%.40s' in %.40s, found '%.40s'", expected, name, found);
    CHECK(strcmp(found, expected) == 0);
}

static int lowest_free_descriptor(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && close(fd) == 0);
    return fd;
}

static off_t size_of(const char *name) {
    struct stat status;
    CHECK(stat(name, &status) == 0);
    return status.st_size;
}

/* How the file is made, and which files there may be already. */
static void opened(void) {
    struct stat status;
    mode_t before = umask(0);
    CHECK_AT("a new file");
    CHECK(lm_line_file_open(&file, "s", path, "a,b\n") == 0);
    umask(before);
    CHECK(fstat(file.fd, &status) == 0 && (status.st_mode & 07777) == 0640);
    int flags = fcntl(file.fd, F_GETFL);
    CHECK((flags & O_APPEND) && (flags & O_ACCMODE) == O_WRONLY && file.is_regular);
    CHECK(fcntl(file.fd, F_GETFD) & FD_CLOEXEC);
    lm_line_file_close(&file);
    CHECK(lm_line_file_open(&file, "s", path, "a,b\n") == 0); /* it is empty still */
    lm_line_file_close(&file);
    check_write_file(path, "a,b\nx", 5);
    CHECK(lm_line_file_open(&file, "s", path, "a,b\n") == 0);
    CHECK(lm_line_file_open(&file, "s", path, "a,b\nx,") == LUMEN_E_INVALID);
    check_write_file(path, "a,b", 3); /* the beginning of a header is none */
    CHECK(lm_line_file_open(&file, "s", path, "a,b\n") == LUMEN_E_INVALID);
    CHECK(lm_line_file_open(&file, "s", path, NULL) == 0); /* lines without columns go to any */
    lm_line_file_close(&file);
    CHECK(unlink(path) == 0);
}

/* A buffer that is exactly full is not written yet. */
static void buffered(void) {
    static char line[LM_LINE_BYTES_MAX];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    CHECK_AT("a full buffer");
    CHECK(lm_line_file_open(&file, "s", path, NULL) == 0);
    for (uint32_t i = 1; i <= LM_LINE_FILE_BYTES / LM_LINE_BYTES_MAX; i++) {
        CHECK(!lm_line_file_add(&file, line, sizeof line, &stop));
        CHECK(file.used == i * sizeof line && file.lines == i && size_of(path) == 0);
    }
    add("y\n");
    CHECK(size_of(path) == LM_LINE_FILE_BYTES && file.used == 2 && file.lines == 1);
    flush();
    CHECK(size_of(path) == LM_LINE_FILE_BYTES + 2 && file.used == 0 && file.lines == 0);
    lm_line_file_close(&file);
    CHECK(unlink(path) == 0);
}

/* A restart goes on where the last server ended, and the header stands there once. */
static void appended(void) {
    for (int start = 0; start < 3; start++) {
        CHECK(lm_line_file_open(&file, "s", path, "a,b\n") == 0);
        CHECK(!add("1,2\n") && !flush() && !flush());
        lm_line_file_close(&file);
        lm_line_file_close(&file);
    }
    holds(path, "a,b\n1,2\n1,2\n1,2\n");
    CHECK(lm_line_file_open(&file, "s", path, "a,b,c\n") == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "s: expected no file, or one with the same columns"));
    holds(path, "a,b\n1,2\n1,2\n1,2\n");
    CHECK(lm_line_file_open(&file, "s", "/none/x", NULL) == LUMEN_E_IO);
    CHECK(strstr(lm_error_last(), "s: cannot write /none/x"));
    lm_line_file_close(&file);
}

/* logrotate: moved away and opened again, or copied and cut. */
static void rotated(void) {
    CHECK(unlink(path) == 0 && lm_line_file_open(&file, "s", path, "a\n") == 0);
    add("1\n"), flush();
    int free_descriptor = lowest_free_descriptor();
    CHECK(rename(path, moved) == 0);
    add("2\n"), flush();
    CHECK(lm_line_file_reopen(&file) == 0);
    add("3\n"), flush();
    holds(moved, "a\n1\n2\n");
    holds(path, "a\n3\n");
    CHECK(truncate(path, 0) == 0);
    add("4\n"), flush();
    holds(path, "a\n4\n"); /* at the start: no hole before it */
    CHECK(unlink(path) == 0);
    check_write_file(path, "other\n", 6);
    CHECK(lm_line_file_reopen(&file) == LUMEN_E_INVALID);
    CHECK(lowest_free_descriptor() <= free_descriptor); /* each file is closed */
    add("5\n");
    CHECK(!flush()); /* the old file is there, without a name */
    lm_line_file_close(&file);
}

static void full(void) {
    CHECK(lm_line_file_open(&file, "s", "/dev/full", NULL) == 0);
    add("1\n"), add("2\n");
    CHECK(flush() && strstr(lm_error_last(), "s: cannot write /dev/full") && file.lost == 2);
    add("3\n");
    CHECK(!flush() && file.lost == 3); /* said once */
    /* More than the buffer holds: the rest is not written either, and nothing overflows. */
    for (int i = 0; i < 3 * LM_LINE_FILE_BYTES / 2; i++) add("4\n");
    flush();
    CHECK(file.lost == 3 + 3 * LM_LINE_FILE_BYTES / 2);
    file.path = path;
    unlink(path);
    CHECK(lm_line_file_reopen(&file) == 0);
    add("5\n");
    CHECK(flush() && strstr(lm_error_last(), "is written again"));
    holds(path, "5\n");
    lm_line_file_close(&file);
}

/* stdout without room: waited for until the end, and not beyond it. Without a reader: lost. */
static void pipes(void) {
    int ends[2], before = dup(STDOUT_FILENO);
    char line[1024];
    CHECK(pipe2(ends, O_CLOEXEC) == 0 && before >= 0 && signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK(dup2(ends[1], STDOUT_FILENO) >= 0 && close(ends[1]) == 0);
    CHECK(lm_line_file_open(&file, "s", "-", NULL) == 0);
    CHECK(dup2(before, STDOUT_FILENO) >= 0 && close(before) == 0);
    CHECK(file.fd >= 3 && (fcntl(file.fd, F_GETFD) & FD_CLOEXEC) && !file.is_regular);
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    add("first\n"), flush();
    CHECK(read(ends[0], line, 6) == 6 && memcmp(line, "first\n", 6) == 0);
    lm_store_release_u32(&stop, 1);
    bool lost = false;
    for (int i = 0; i < 1000 && !lost; i++) {
        lm_line_file_add(&file, line, sizeof line, &stop);
        lost = flush();
    }
    CHECK(lost && file.lost >= 1 && strstr(lm_error_last(), "cannot write -"));
    lm_store_release_u32(&stop, 0);
    close(ends[0]);
    uint64_t before_lost = file.lost;
    add("last\n");
    CHECK(!flush() && file.lost == before_lost + 1);
    lm_line_file_close(&file);
}

/* A pipe gets the header once it can be written, and no piece that would have to be waited for. */
static void header_and_pieces(void) {
    static char line[LM_LINE_BYTES_MAX], taken[LM_LINE_BYTES_MAX];
    char fifo[160];
    snprintf(fifo, sizeof fifo, "%s.fifo", path);
    CHECK_AT("a pipe with a name");
    CHECK(unlink(path) == 0 && mkfifo(fifo, 0600) == 0);
    int reader = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(reader >= 0 && lm_line_file_open(&file, "s", path, "h\n") == 0 && file.is_regular);
    file.path = fifo;
    CHECK(lm_line_file_reopen(&file) == 0 && !file.is_regular);
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    CHECK(fcntl(file.fd, F_SETFL, O_NONBLOCK) == 0);
    while (write(file.fd, line, sizeof line) > 0) {
    }
    CHECK(errno == EAGAIN && fcntl(file.fd, F_SETFL, 0) == 0);
    lm_store_release_u32(&stop, 1);
    add("1\n");
    CHECK(flush() && file.lost == 1 && strstr(lm_error_last(), "lines are lost until it can be"));
    /* With room for two pages the header goes, and a line of a page; three are not begun as one. */
    for (int i = 0; i < 2; i++) CHECK(read(reader, taken, sizeof taken) == sizeof taken);
    for (int i = 0; i < 3; i++) lm_line_file_add(&file, line, sizeof line, &stop);
    CHECK(!flush() && file.lost == 4);
    uint32_t headers = 0;
    for (ssize_t bytes; (bytes = read(reader, taken, sizeof taken)) > 0;)
        for (ssize_t i = 0; i < bytes; i++) headers += taken[i] == 'h';
    CHECK(headers == 1);
    lm_store_release_u32(&stop, 0);
    add("2\n");
    CHECK(flush() && strstr(lm_error_last(), "is written again, after 4 lines were lost"));
    CHECK(read(reader, taken, sizeof taken) == 2 && memcmp(taken, "2\n", 2) == 0);
    close(reader);
    lm_line_file_close(&file);
    CHECK(unlink(path) == 0);
}

int main(void) {
    snprintf(path, sizeof path, "%s/lines", check_temporary_directory());
    snprintf(moved, sizeof moved, "%s/moved", check_temporary_directory());
    check_watchdog(60, "a pipe that is waited for");
    opened();
    buffered();
    appended();
    rotated();
    full();
    pipes();
    header_and_pieces();
    return check_finish("test_line_file");
}
