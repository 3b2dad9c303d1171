#include "json_python.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jsontext.h"

enum mr_status mr_json_read(const char *path, char **text, size_t *bytes, struct mr_error *err)
{
    FILE *file = fopen(path, "rb");
    if (!file) return mr_fail(err, MR_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    size_t room = 1 << 16, used = 0;
    char *buffer = malloc(room);
    /* Read to the end instead of asking for the size: a pipe (--config <(...)) has none. */
    while (buffer && used <= MR_JSON_MAX_BYTES) {
        errno = 0;
        used += fread(buffer + used, 1, room - used, file);
        if (used < room) break;
        char *larger = realloc(buffer, room *= 2);
        if (!larger) free(buffer);
        buffer = larger;
    }
    enum mr_status status = MR_OK;
    if (!buffer)
        status = mr_fail(err, MR_ERR_MEMORY, "%s: no memory for %zu bytes", path, room);
    else if (ferror(file))
        status = mr_fail(err, MR_ERR_IO, "%s: cannot read at offset %zu: %s", path, used,
                         strerror(errno));
    else if (used > MR_JSON_MAX_BYTES)
        status = mr_fail(err, MR_ERR_FORMAT, "%s: expected at most %u bytes of JSON", path,
                         MR_JSON_MAX_BYTES);
    fclose(file);
    if (status != MR_OK) {
        free(buffer);
        return status;
    }
    *text = buffer;
    *bytes = used;
    return MR_OK;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Length of a Python token at text[i], 0 if there is none. Before a colon it would be a key, which
 * Python refuses, so it is left for the parser to refuse. */
static size_t python_token(const char *text, size_t bytes, size_t i)
{
    static const char *const tokens[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
        size_t n = strlen(tokens[t]);
        if (bytes - i < n || memcmp(text + i, tokens[t], n) != 0) continue;
        size_t after = i + n;
        while (after < bytes && is_space(text[after])) after++;
        return after < bytes && text[after] == ':' ? 0 : n;
    }
    return 0;
}

/* Puts quotes around the tokens and counts them. A token glued to other text leaves something that
 * is no JSON, so nothing is let in that Python would refuse. */
static char *quote_tokens(const char *text, size_t bytes, size_t *quoted_bytes, size_t *count)
{
    char *out = malloc(bytes * 2 + 1); /* the shortest token, of 3 bytes, becomes 5 */
    if (!out) return NULL;
    size_t used = 0;
    bool in_string = false;
    *count = 0;
    for (size_t i = 0; i < bytes;) {
        size_t n = in_string ? 0 : python_token(text, bytes, i);
        if (n) {
            out[used++] = '"';
            memcpy(out + used, text + i, n);
            used += n;
            out[used++] = '"';
            i += n;
            ++*count;
            continue;
        }
        if (in_string && text[i] == '\\' && i + 1 < bytes) out[used++] = text[i++];
        else if (text[i] == '"') in_string = !in_string;
        out[used++] = text[i++];
    }
    *quoted_bytes = used;
    return out;
}

/* Quotes move the bytes that mr_jsontext_parse would name, but not the lines. */
static enum mr_status parse_quoted(const char *text, size_t bytes, const char *path, json_t **out,
                                   struct mr_error *err)
{
    json_error_t error;
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out) return MR_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory for %zu bytes of JSON", path, bytes);
    return mr_fail(err, MR_ERR_FORMAT, "%s: line %d: not JSON: %s", path, error.line, error.text);
}

enum mr_status mr_json_document(const char *text, size_t bytes, const char *path,
                                enum mr_json_dialect dialect, json_t **out, struct mr_error *err)
{
    json_t *document;
    char *quoted = NULL;
    size_t quoted_bytes, tokens = 0;
    if (bytes > MR_JSON_MAX_BYTES)
        return mr_fail(err, MR_ERR_FORMAT, "%s: expected at most %u bytes of JSON, found %zu", path,
                       MR_JSON_MAX_BYTES, bytes);
    if (dialect == MR_JSON_PYTHON) {
        quoted = quote_tokens(text, bytes, &quoted_bytes, &tokens);
        if (!quoted)
            return mr_fail(err, MR_ERR_MEMORY, "%s: out of memory for %zu bytes of JSON", path,
                           bytes);
    }
    enum mr_status status = tokens ? parse_quoted(quoted, quoted_bytes, path, &document, err)
                                   : mr_jsontext_parse(text, bytes, 0, path, &document, err);
    free(quoted);
    if (status != MR_OK) return status;
    if (!json_is_object(document)) {
        json_decref(document);
        return mr_fail(err, MR_ERR_FORMAT, "%s: expected a JSON object, found an array", path);
    }
    *out = document;
    return MR_OK;
}
