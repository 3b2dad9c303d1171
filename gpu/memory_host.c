/* Host memory, for kernels that run on the CPU. Pages that nobody may touch lie beyond the
 * canaries: a write further away ends the child with a signal, not another buffer's contents. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "memory.h"

/* PAGE is a multiple of any page size in use; NOBODY costs addresses, not memory. */
enum { PAGE = 65536, NOBODY = 256 << 20 };

static size_t rounded(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static enum mr_status host_allocate(size_t bytes, void **out, struct mr_error *err)
{
    size_t inside = rounded(bytes);
    char *p = mmap(NULL, inside + 2 * (size_t)NOBODY, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p + NOBODY, inside, PROT_READ | PROT_WRITE))
        return mr_fail(err, MR_ERR_MEMORY, "%zu bytes of host memory: %s", bytes, strerror(errno));
    *out = p + NOBODY;
    return MR_OK;
}

static void host_release(void *pointer, size_t bytes)
{
    munmap((char *)pointer - NOBODY, rounded(bytes) + 2 * (size_t)NOBODY);
}

static enum mr_status host_fill(void *to, int byte, size_t bytes, struct mr_error *err)
{
    (void)err;
    memset(to, byte, bytes);
    return MR_OK;
}

static enum mr_status host_copy(void *to, const void *from, size_t bytes, struct mr_error *err)
{
    (void)err;
    memcpy(to, from, bytes);
    return MR_OK;
}

static enum mr_status host_stream(void **out, struct mr_error *err)
{
    (void)err;
    *out = NULL;
    return MR_OK;
}

static enum mr_status host_wait(void *stream, struct mr_error *err)
{
    (void)stream;
    (void)err;
    return MR_OK;
}

const struct gpu_memory gpu_memory_host = {
    .allocate = host_allocate, .release = host_release, .fill = host_fill, .put = host_copy,
    .get = host_copy, .stream = host_stream, .wait = host_wait};
