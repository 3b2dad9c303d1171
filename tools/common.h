/* What all programs share: the one way to fail, and small parsers of option values. */
#ifndef MOEREF_TOOLS_COMMON_H
#define MOEREF_TOOLS_COMMON_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "../ref/io/case.h"
#include "../ref/status.h"

/* What messages begin with, and what they tell to ask for help: "moeref" unless main says so. */
extern const char *program_name;

/* "moeref: message" on stderr, one line (control characters as '?'), then exit(status). */
_Noreturn void die(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* die with a library failure's exit status and message. */
_Noreturn void die_of(enum mr_status status, const struct mr_error *err);
/* calloc that dies. */
void *need(size_t count, size_t size);

/* Whether `layer` is in a list such as "1,3-5"; NULL is every layer. The list must have passed
 * check_layers, which dies on a malformed one. */
void check_layers(const char *list);
bool layer_listed(const char *list, int layer);

/* Dies unless the case has every layer of the list. */
void need_layers(const struct mr_case *c, const char *list);

/* A decimal integer within [low, high], or die naming the option. */
long option_number(const char *option, const char *text, long low, long high);

/* The path to write for `option`: `path`, or the file that it links to (outputs are renamed into
 * place, which would put a file where the link was: /dev/stdout is one). Dies unless a regular file
 * is there, or nothing and its folder can be written. Asked before the work, so that hours of it
 * are not lost to a typing error. */
const char *output_path(const char *option, const char *path, char resolved[PATH_MAX]);

/* Usage errors of getopt_long, in our words. */
_Noreturn void bad_option(const char *command, int c, char **argv, int index);

/* Starts this program anew with the OPENBLAS_CORETYPE of mr_openblas_better_core, if there is one. */
void use_better_blas(char **argv);

#endif
