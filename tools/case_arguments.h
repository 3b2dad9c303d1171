/* What commands share that take a CASE, or plain files in its place. */
#ifndef MOEREF_TOOLS_CASE_ARGUMENTS_H
#define MOEREF_TOOLS_CASE_ARGUMENTS_H

#include "../ref/io/case.h"

/* The CASE of a command that compares logits, or NULL: files names them, complete. Dies unless it
 * is one of the two. After getopt. */
const char *logits_case_path(const char *command, const struct mr_case_files *files, int argc,
                             char **argv);

/* Loads the case at path, or makes one of plain files if path is NULL; dies if that fails, and if
 * the case has no use for a seed or a capture that was asked for: what would be ignored is refused. */
struct mr_case *open_case(const char *command, const char *path, const struct mr_case_files *files,
                          const struct mr_case_options *options);

#endif
