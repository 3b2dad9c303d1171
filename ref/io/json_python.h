/* JSON text to jansson values: strict, or with the three tokens that Python's json adds. */
#ifndef MOEREF_JSON_PYTHON_H
#define MOEREF_JSON_PYTHON_H

#include <jansson.h>
#include <stddef.h>

#include "../status.h"

/* The largest JSON file that is read; real config.json files reach 3 MB (NVFP4 ignore lists). */
#define MR_JSON_MAX_BYTES (64u << 20)

enum mr_json_dialect {
    MR_JSON_STRICT, /* RFC 8259 */
    MR_JSON_PYTHON  /* also NaN, Infinity and -Infinity where a value may stand (Python's json.dump
                       writes them): they become the strings "NaN", "Infinity", "-Infinity", so a
                       number is never made of them */
};

/* A whole file, malloc'ed. MR_ERR_IO, or MR_ERR_FORMAT above MR_JSON_MAX_BYTES. */
enum mr_status mr_json_read(const char *path, char **text, size_t *bytes, struct mr_error *err);

/* The document must be an object; duplicate keys are refused (MR_ERR_FORMAT says where). */
enum mr_status mr_json_document(const char *text, size_t bytes, const char *path,
                                enum mr_json_dialect dialect, json_t **out, struct mr_error *err);

#endif
