/* A router from the text of a case file's "router", and back. */
#ifndef MOEREF_ROUTER_JSON_H
#define MOEREF_ROUTER_JSON_H

#include <jansson.h>

#include "../route/router.h"

/* config: path of a config.json, NULL: none; text: a JSON object, NULL: none, whose keys stand over
 * the config's. Without a config every figure must be there, but hidden. */
enum mr_status mr_router_load(const char *config, const char *text, struct mr_router *out,
                              struct mr_error *err);
/* The keys of "router", "hidden" only if it is said, so that mr_router_load reads the same router; the
 * caller owns the result; NULL without memory. */
json_t *mr_router_json(const struct mr_router *router);

#endif
