/* Read-only maps of whole regular files. Internal to ref/io. */
#ifndef MOEREF_MAPPED_H
#define MOEREF_MAPPED_H

#include <stddef.h>
#include <sys/types.h>

#include "../status.h"

struct mr_mapped {
    const unsigned char *image; /* never NULL after success, also for an empty file */
    size_t bytes;
    dev_t device; /* with inode: tells whether two paths are one file */
    ino_t inode;
};

/* Maps path. Refuses what is not a regular file (folder, FIFO, device) without waiting on it. */
enum mr_status mr_mapped_open(const char *path, struct mr_mapped *out, struct mr_error *err);
void mr_mapped_close(struct mr_mapped *map);

/* MR_ERR_MEMORY for an errno that says a resource is used up, otherwise MR_ERR_IO. */
enum mr_status mr_errno_status(int error);

#endif
