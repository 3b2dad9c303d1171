#include "mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned char nothing[1];

enum mr_status mr_errno_status(int error)
{
    return error == ENOMEM || error == EMFILE || error == ENFILE ? MR_ERR_MEMORY : MR_ERR_IO;
}

static const char *kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return "a folder";
    case S_IFIFO: return "a FIFO";
    case S_IFCHR: return "a character device";
    case S_IFBLK: return "a block device";
    case S_IFSOCK: return "a socket";
    default: return "no regular file";
    }
}

/* A file that another process shortens while it is mapped raises SIGBUS on a read beyond its new
 * end. Nothing short of copying prevents that; the size is that of the open descriptor, so at least
 * a path that is replaced between two calls cannot mix two files. */
static enum mr_status map(int fd, const char *path, struct mr_mapped *out, struct mr_error *err)
{
    struct stat st;
    if (fstat(fd, &st)) return mr_fail(err, mr_errno_status(errno), "%s: cannot stat: %m", path);
    if (!S_ISREG(st.st_mode))
        return mr_fail(err, MR_ERR_IO, "%s: expected a regular file, found %s", path,
                       kind(st.st_mode));
    if ((uintmax_t)st.st_size > SIZE_MAX)
        return mr_fail(err, MR_ERR_MEMORY, "%s: %jd bytes are more than this machine can map", path,
                       (intmax_t)st.st_size);
    out->bytes = (size_t)st.st_size;
    out->device = st.st_dev;
    out->inode = st.st_ino;
    out->image = nothing; /* mmap refuses a length of zero */
    if (!out->bytes) return MR_OK;
    void *image = mmap(NULL, out->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (image == MAP_FAILED)
        return mr_fail(err, mr_errno_status(errno), "%s: cannot map %zu bytes: %m", path,
                       out->bytes);
    out->image = image;
    return MR_OK;
}

enum mr_status mr_mapped_open(const char *path, struct mr_mapped *out, struct mr_error *err)
{
    /* O_NONBLOCK: opening a FIFO without a writer would wait for one. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return mr_fail(err, mr_errno_status(errno), "%s: cannot open: %m", path);
    enum mr_status status = map(fd, path, out, err);
    close(fd); /* the map keeps the file */
    return status;
}

void mr_mapped_close(struct mr_mapped *map)
{
    if (map->image && map->image != nothing) munmap((void *)map->image, map->bytes);
    map->image = NULL;
}
