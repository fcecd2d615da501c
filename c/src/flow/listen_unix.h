/* listen_unix.h: the listening unix socket and its file. Control thread. */
#ifndef LM_FLOW_LISTEN_UNIX_H
#define LM_FLOW_LISTEN_UNIX_H

#include "flow/state.h"

/* A unix socket's file; `inode` 0: not ours, or not any more. */
struct lm_unix_file {
    char path[LM_UNIX_PATH_BYTES_MAX]; /* "": none is asked for */
    uint64_t device, inode;
};
/* The listener is the first I/O thread's, see accept.h. Replaces a file that nobody listens on. */
int lm_listen_unix(struct lm_shared *shared, struct lm_unix_file *file, uint32_t mode);
/* Removes the file if it is still ours. May be called twice. */
void lm_unlink_unix(struct lm_unix_file *file);

#endif
