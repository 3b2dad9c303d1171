#include "jsontext.h"

#include <errno.h>
#include <string.h>

size_t mr_utf8_invalid(const void *text, size_t bytes)
{
    const unsigned char *s = text;
    size_t i = 0;
    while (i < bytes) {
        unsigned char c = s[i];
        if (c < 0x80) {
            i++;
            continue;
        }
        /* The bounds of the second byte shut out overlong forms, surrogates and > U+10FFFF. */
        unsigned low = 0x80, high = 0xbf;
        size_t more;
        if (c >= 0xc2 && c <= 0xdf)
            more = 1;
        else if (c >= 0xe0 && c <= 0xef)
            more = 2;
        else if (c >= 0xf0 && c <= 0xf4)
            more = 3;
        else
            return i;
        if (c == 0xe0) low = 0xa0;
        if (c == 0xed) high = 0x9f;
        if (c == 0xf0) low = 0x90;
        if (c == 0xf4) high = 0x8f;
        if (bytes - i <= more || s[i + 1] < low || s[i + 1] > high) return i;
        for (size_t k = 2; k <= more; k++)
            if ((s[i + k] & 0xc0) != 0x80) return i;
        i += more + 1;
    }
    return bytes;
}

int mr_shown(const char *name)
{
    int n = (int)strnlen(name, 97);
    if (n <= 96) return n;
    n = 96;
    while (n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80) n--;
    return n;
}

const char *mr_jsontext_kind(const json_t *value)
{
    if (!value) return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with fraction or exponent";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

/* jansson bounds the nesting (JSON_PARSER_MAX_DEPTH, 2048) and refuses lone surrogates, NaN and
 * integers beyond 2^63-1 by itself; its text says which. */
enum mr_status mr_jsontext_parse(const char *text, size_t bytes, size_t base, const char *path,
                                 json_t **out, struct mr_error *err)
{
    size_t bad = mr_utf8_invalid(text, bytes);
    if (bad < bytes)
        return mr_fail(err, MR_ERR_FORMAT, "%s: byte %zu: expected UTF-8, found 0x%02x", path,
                       base + bad, (unsigned char)text[bad]);
    json_error_t e;
    memset(&e, 0, sizeof e);
    errno = 0;
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
    if (*out) return MR_OK;
    enum json_error_code code = json_error_code(&e);
    /* jansson 2.14 calls a failed malloc in its lexer an invalid token; malloc sets errno (POSIX).
     */
    if (code == json_error_out_of_memory || errno == ENOMEM || !*e.text)
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory for %zu bytes of JSON", path, bytes);
    size_t at = base + (e.position > 0 ? (size_t)e.position : 0);
    switch (code) {
    case json_error_duplicate_key:
        return mr_fail(err, MR_ERR_FORMAT,
                       "%s: before byte %zu: a key occurs twice in one object: %s", path, at,
                       e.text);
    case json_error_null_character:
        return mr_fail(err, MR_ERR_FORMAT,
                       "%s: before byte %zu: \\u0000 in a string is not served: %s", path, at,
                       e.text);
    case json_error_end_of_input_expected:
        return mr_fail(err, MR_ERR_FORMAT,
                       "%s: before byte %zu: expected only white space after the closing brace, "
                       "found more: %s",
                       path, at, e.text);
    default:
        return mr_fail(err, MR_ERR_FORMAT, "%s: before byte %zu: not JSON: %s", path, at, e.text);
    }
}
