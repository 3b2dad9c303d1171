#include "json_value.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "jsontext.h"

const char *mr_json_show(const json_t *value, char buffer[MR_JSON_SHOWN])
{
    if (!value) return strcpy(buffer, "nothing");
    switch (json_typeof(value)) {
    case JSON_TRUE: return strcpy(buffer, "true");
    case JSON_FALSE: return strcpy(buffer, "false");
    case JSON_INTEGER:
        snprintf(buffer, MR_JSON_SHOWN, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return buffer;
    case JSON_REAL: {
        /* 2.0 must not look like the integer that was asked for. */
        int n = snprintf(buffer, MR_JSON_SHOWN, "%.9g", json_real_value(value));
        if (!strpbrk(buffer, ".e") && n + 3 <= MR_JSON_SHOWN) strcat(buffer, ".0");
        return buffer;
    }
    case JSON_STRING: {
        const char *text = json_string_value(value);
        bool cut = strlen(text) > MR_JSON_SHOWN - 8;
        snprintf(buffer, MR_JSON_SHOWN, cut ? "\"%.37s...\"" : "\"%s\"", text);
        return buffer;
    }
    default: return strcpy(buffer, mr_jsontext_kind(value));
    }
}

static enum mr_status not_a(const json_t *value, const char *path, const char *key,
                            const char *kind, struct mr_error *err)
{
    char shown[MR_JSON_SHOWN];
    if (!value) return mr_fail(err, MR_ERR_MISSING, "%s: key \"%s\" is missing", path, key);
    return mr_fail(err, MR_ERR_FORMAT, "%s: \"%s\": expected %s, found %s", path, key, kind,
                   mr_json_show(value, shown));
}

enum mr_status mr_json_int(const json_t *value, const char *path, const char *key, int least,
                           int *out, struct mr_error *err)
{
    if (!json_is_integer(value)) return not_a(value, path, key, "an integer", err);
    json_int_t n = json_integer_value(value);
    if (n < least || n > INT_MAX)
        return mr_fail(err, MR_ERR_VALUE, "%s: \"%s\": expected %d to %d, found %"
                       JSON_INTEGER_FORMAT, path, key, least, INT_MAX, n);
    *out = (int)n;
    return MR_OK;
}

enum mr_status mr_json_double(const json_t *value, const char *path, const char *key, double *out,
                              struct mr_error *err)
{
    if (!json_is_number(value)) return not_a(value, path, key, "a number", err);
    *out = json_number_value(value);
    return MR_OK;
}

enum mr_status mr_json_bool(const json_t *value, const char *path, const char *key, bool *out,
                            struct mr_error *err)
{
    if (!json_is_boolean(value)) return not_a(value, path, key, "true or false", err);
    *out = json_is_true(value);
    return MR_OK;
}

enum mr_status mr_json_string(const json_t *value, const char *path, const char *key,
                              const char **out, struct mr_error *err)
{
    if (!json_is_string(value) || !*json_string_value(value))
        return not_a(value, path, key, "a string that is not empty", err);
    *out = json_string_value(value);
    return MR_OK;
}

enum mr_status mr_json_keys(const json_t *object, const char *path, const char *where,
                            const char *const *known, struct mr_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        const char *const *k = known;
        while (*k && strcmp(*k, key) != 0) k++;
        if (!*k) return mr_fail(err, MR_ERR_FORMAT, "%s: unknown key \"%s%s\"", path, where, key);
    }
    return MR_OK;
}
