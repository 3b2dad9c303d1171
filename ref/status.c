#include "status.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

static const char *const names[] = {
    [MR_OK] = "ok",           [MR_ERR_USAGE] = "usage",     [MR_ERR_IO] = "io",
    [MR_ERR_FORMAT] = "format", [MR_ERR_MISSING] = "missing", [MR_ERR_DTYPE] = "dtype",
    [MR_ERR_SHAPE] = "shape", [MR_ERR_VALUE] = "value",     [MR_ERR_UNSUPPORTED] = "unsupported",
    [MR_ERR_MEMORY] = "memory",
};

const char *mr_status_name(enum mr_status status)
{
    size_t i = (size_t)status;
    return i < sizeof names / sizeof *names ? names[i] : "unknown";
}

int mr_status_exit(enum mr_status status)
{
    switch (status) {
    case MR_OK: return 0;
    case MR_ERR_USAGE: return 2;
    case MR_ERR_MEMORY: return 4;
    default: return 3;
    }
}

enum mr_status mr_fail(struct mr_error *err, enum mr_status status, const char *format, ...)
{
    if (!err) return status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    /* Names come from files: nothing in them may move a terminal's cursor. */
    for (char *p = err->text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    return status;
}
