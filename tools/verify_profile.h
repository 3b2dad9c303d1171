/* What a profile promises of the ids that it gives. Apart from verify_run.h: what a profile is, and
 * what rounding is, need not know of each other. */
#ifndef MOEREF_TOOLS_VERIFY_PROFILE_H
#define MOEREF_TOOLS_VERIFY_PROFILE_H

#include <stdbool.h>

#include "../ref/route/profile.h"
#include "../ref/route/router.h"

/* Of --profile NAME. Dies if there is none of that name. */
const struct mr_profile *profile_named(const char *name);

/* Whether ids come by descending key, for this router. Dies if there is no such profile, or if
 * it does not serve the router. */
bool profile_promises_order(const char *name, const struct mr_router *router);

#endif
