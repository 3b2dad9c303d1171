/* Typed reading of JSON values, with messages that name the file, the key and what was found. */
#ifndef MOEREF_JSON_VALUE_H
#define MOEREF_JSON_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "../status.h"

/* What a message says was found: the value if it is short, else its kind. Returns buffer. */
#define MR_JSON_SHOWN 48
const char *mr_json_show(const json_t *value, char buffer[MR_JSON_SHOWN]);

/* value NULL (no such key): MR_ERR_MISSING. Another kind of value: MR_ERR_FORMAT; 8.0 is no
 * integer. Outside least..INT_MAX: MR_ERR_VALUE. key is what the message names. */
enum mr_status mr_json_int(const json_t *value, const char *path, const char *key, int least,
                           int *out, struct mr_error *err);
/* A finite number, integer or not (jansson has no other). */
enum mr_status mr_json_double(const json_t *value, const char *path, const char *key, double *out,
                              struct mr_error *err);
enum mr_status mr_json_bool(const json_t *value, const char *path, const char *key, bool *out,
                            struct mr_error *err);
/* A string that is not empty; *out belongs to value. */
enum mr_status mr_json_string(const json_t *value, const char *path, const char *key,
                              const char **out, struct mr_error *err);
/* Every key of object must be one of known (NULL at its end); where is "" or e.g. "router.". */
enum mr_status mr_json_keys(const json_t *object, const char *path, const char *where,
                            const char *const *known, struct mr_error *err);

#endif
