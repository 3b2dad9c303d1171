/* JSON that comes from a file: strict UTF-8, no duplicate keys, one-line messages with the byte.
 * Internal to ref/io. */
#ifndef MOEREF_JSONTEXT_H
#define MOEREF_JSONTEXT_H

#include <jansson.h>
#include <stddef.h>

#include "../status.h"

/* Offset of the first byte that is not UTF-8 (Unicode 15, table 3-7); bytes if there is none. */
size_t mr_utf8_invalid(const void *text, size_t bytes);

/* How many bytes of a name a message shows (at most 96, whole characters), for "%.*s". */
int mr_shown(const char *name);

/* "an object", "an integer" ...; "nothing" for NULL. */
const char *mr_jsontext_kind(const json_t *value);

/* Parses an object or array that fills text, white space apart. base is the offset of text in the
 * file, for messages. The caller owns *out. */
enum mr_status mr_jsontext_parse(const char *text, size_t bytes, size_t base, const char *path,
                                 json_t **out, struct mr_error *err);

#endif
