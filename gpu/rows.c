#include "rows.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const int gpu_axis[GPU_AXIS] = {1,  2,  4,   5,   6,   8,   16,  17,   18,   24,   32,   33,
                                64, 96, 128, 256, 257, 512, 513, 1024, 1025, 2048, 4096, 8192};

static int compare(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

enum mr_status gpu_rows_parse(const char *text, struct gpu_rows *out, struct mr_error *err)
{
    out->count = 0;
    if (!strcmp(text, "axis")) {
        memcpy(out->at, gpu_axis, sizeof gpu_axis);
        out->count = GPU_AXIS;
        return MR_OK;
    }
    for (const char *p = text;;) {
        char *end = NULL;
        long v = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : 0;
        if (v < 1 || v > GPU_ROWS_LARGEST || (*end && *end != ','))
            return mr_fail(err, MR_ERR_USAGE, "--rows %s: expected 'axis', or numbers from 1 to %d "
                           "as in 1,6,96, at '%s'", text, GPU_ROWS_LARGEST, p);
        if (out->count == GPU_ROWS_MOST)
            return mr_fail(err, MR_ERR_USAGE, "--rows: more than %d numbers", GPU_ROWS_MOST);
        out->at[out->count++] = (int)v;
        if (!*end) break;
        p = end + 1;
    }
    qsort(out->at, out->count, sizeof *out->at, compare);
    for (size_t i = 1; i < out->count; i++)
        if (out->at[i] == out->at[i - 1])
            return mr_fail(err, MR_ERR_USAGE, "--rows %s: %d twice", text, out->at[i]);
    return MR_OK;
}
