/* Status codes shared by all of libmoeref, and the message that goes with a failure. */
#ifndef MOEREF_STATUS_H
#define MOEREF_STATUS_H

enum mr_status {
    MR_OK = 0,
    MR_ERR_USAGE,       /* an argument that no input could make right */
    MR_ERR_IO,          /* open, map, read, write: errno is in the message */
    MR_ERR_FORMAT,      /* a file that breaks the rules of its format */
    MR_ERR_MISSING,     /* a tensor, key or layer that is not there */
    MR_ERR_DTYPE,       /* a tensor of a type that does not serve here */
    MR_ERR_SHAPE,       /* a tensor of the wrong shape, or two that disagree */
    MR_ERR_VALUE,       /* a value out of range (top_k > experts, NaN in a gate weight) */
    MR_ERR_UNSUPPORTED, /* understood, and not served: the message says what */
    MR_ERR_MEMORY       /* out of memory or of another resource */
};

/* "io", "format" ...: stable names, for messages and JSON. Never NULL. */
const char *mr_status_name(enum mr_status status);

/* Exit status of a program that fails so: 2 usage, 4 out of resources, 3 all other input errors. */
int mr_status_exit(enum mr_status status);

/* One line: path, offset, what was expected, what was found. Empty after MR_OK. */
struct mr_error {
    char text[768];
};

/* Writes the message (cut at the end of the buffer, control characters as '?') and returns
 * status, so that `return mr_fail(err, MR_ERR_SHAPE, "...")` reads as one statement. err may be
 * NULL. */
enum mr_status mr_fail(struct mr_error *err, enum mr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
