/* listen_unix.c: the unix socket's file: taken at start, given back at the end. Control thread.
 *
 * A server that was killed leaves its file behind, and one that runs must not lose its own. Which
 * of them it is only a connection can tell: nobody listens where it is refused. Between that look
 * and the new file another server could come in, so its folder is locked meanwhile; servers other
 * than ours know nothing of the lock. It is the folder itself, since a lock file would be left
 * behind.
 */
#include "flow/listen_unix.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "flow/accept.h"

_Static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) == LM_UNIX_PATH_BYTES_MAX,
               "a path that fits here fits the address");

enum { LOCK_TRIES = 5000, LOCK_PAUSE_NS = 1000000 }; /* 5 s: others hold it for microseconds */

static struct sockaddr_un address_of(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    return address;
}

/* Locks the folder until the descriptor is closed; -1 in it where that is not allowed to us: the
 * lock keeps two servers of ours apart that start at the same moment, and is worth no failure. */
static int lock_folder(const char *path, int *lock_out) {
    char folder[LM_UNIX_PATH_BYTES_MAX + 1];
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) + 1 : 0;
    memcpy(folder, path, bytes);
    if (bytes == 0) folder[bytes++] = '.';
    folder[bytes] = '\0';
    *lock_out = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock_out < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return lm_error_errno(
            LUMEN_E_IO, errno,
            "server.unix_socket: expected a folder for %s, found none (make it, or "
            "have systemd do so with RuntimeDirectory=)",
            path);
    }
    for (int tries = 0; *lock_out >= 0 && flock(*lock_out, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno == EWOULDBLOCK && tries < LOCK_TRIES) {
            nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
            continue;
        }
        close(*lock_out);
        *lock_out = -1;
    }
    return 0;
}

static int refuse_file(const char *path, const char *found) {
    return lm_error(
        LUMEN_E_IO,
        "server.unix_socket: expected nothing at %s, or a socket that nobody listens on, "
        "found %s: it is left alone; remove it or choose another path",
        path, found);
}

static const char *kind_of(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFREG: return "a file";
    case S_IFDIR: return "a folder";
    case S_IFLNK: return "a symbolic link";
    default: return "a device or a pipe";
    }
}

/* 0: nobody listens there. */
static int look_for_listener(const char *path) {
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return lm_error_errno(LUMEN_E_IO, errno, "server.unix_socket: cannot look at %s", path);
    int number = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    close(fd);
    switch (number) {
    case ECONNREFUSED:
    case ENOENT: return 0;
    case 0:
    case EAGAIN: /* so many wait to be accepted that no more fit */
    case EPROTOTYPE:
        return lm_error(LUMEN_E_IO,
                        "server.unix_socket: expected a path of its own, found %s in use: somebody "
                        "listens there (ss -lxp src %s); stop it or choose another path",
                        path, path);
    default:
        return lm_error_errno(LUMEN_E_IO, number,
                              "server.unix_socket: cannot find out whether somebody listens on %s",
                              path);
    }
}

/* Makes sure that nothing is at the path. */
static int clear_path(const char *path) {
    struct stat status;
    if (lstat(path, &status) != 0) {
        if (errno == ENOENT) return 0;
        return lm_error_errno(LUMEN_E_IO, errno, "server.unix_socket: cannot look at %s", path);
    }
    if (!S_ISSOCK(status.st_mode)) return refuse_file(path, kind_of(status.st_mode));
    int code = look_for_listener(path);
    if (code) return code;
    if (unlink(path) == 0 || errno == ENOENT) return 0;
    return lm_error_errno(LUMEN_E_IO, errno,
                          "server.unix_socket: cannot replace %s, on which nobody listens", path);
}

/* The mode is set before anybody can connect: until listen() everybody is refused. */
static int open_listener(struct lm_unix_file *file, uint32_t mode, int *fd_out) {
    struct sockaddr_un address = address_of(file->path);
    struct stat status;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (bound && lstat(file->path, &status) == 0 && chmod(file->path, (mode_t)mode) == 0 &&
        listen(fd, LM_LISTEN_BACKLOG) == 0) {
        file->device = status.st_dev;
        file->inode = status.st_ino;
        *fd_out = fd;
        return 0;
    }
    int number = errno;
    if (bound) unlink(file->path);
    if (fd >= 0) close(fd);
    return lm_error_errno(LUMEN_E_IO, number, "server.unix_socket: cannot listen on %s",
                          file->path);
}

int lm_listen_unix(struct lm_shared *shared, struct lm_unix_file *file, uint32_t mode) {
    int lock = -1;
    int code = lock_folder(file->path, &lock);
    if (!code) code = clear_path(file->path);
    if (!code) code = open_listener(file, mode, &shared->ios[0].listen_fds[LM_LISTENER_UNIX]);
    if (lock >= 0) close(lock);
    return code;
}

/* Called while the listener is open: it keeps its inode, whose number no other file can have. */
void lm_unlink_unix(struct lm_unix_file *file) {
    struct stat status;
    if (file->inode && lstat(file->path, &status) == 0 && status.st_dev == file->device &&
        status.st_ino == file->inode) {
        unlink(file->path);
    }
    file->inode = 0;
}
