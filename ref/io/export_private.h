/* Inside of export*.c. */
#ifndef MOEREF_EXPORT_PRIVATE_H
#define MOEREF_EXPORT_PRIVATE_H

#include <limits.h>

#include "export.h"

struct mr_export_job {
    struct mr_case *c;
    const struct mr_export *how;
    char name[256]; /* of the case that is written */
    char json[PATH_MAX], tensors[PATH_MAX];
    bool logits;   /* it starts from logits */
    bool observed; /* it holds what the case observed */
    bool weights;  /* it has tensors of a checkpoint */
};

/* Whether the i-th layer is asked for and has its input in that phase. */
bool mr_export_has(const struct mr_export_job *job, size_t i, const char *phase);
/* "fp32", "bf16", "fp16". */
const char *mr_export_type(enum mr_dtype type);
/* The case, as text; NULL without memory. To be freed. */
char *mr_export_json(const struct mr_export_job *job);
/* The tensors, to a file. */
enum mr_status mr_export_tensors(const struct mr_export_job *job, const char *path,
                                 struct mr_error *err);

#endif
