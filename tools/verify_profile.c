#include "verify_profile.h"

#include "common.h"

const struct mr_profile *profile_named(const char *name)
{
    const struct mr_profile *p = mr_profile_find(name);
    if (!p) die(2, "--profile %s: no such profile; known: %s", name, mr_profile_names());
    return p;
}

bool profile_promises_order(const char *name, const struct mr_router *router)
{
    struct mr_error err = {{0}};
    const struct mr_profile_row *row;
    enum mr_status status = mr_profile_row(profile_named(name), router, false, &row, &err);
    if (status) die_of(status, &err);
    return mr_profile_promises_order(row);
}
