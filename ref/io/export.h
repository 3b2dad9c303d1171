/* Any case, written out whole: one JSON, one safetensors file, all tensors under their default
 * names, so that a reader needs neither config.json nor generators. */
#ifndef MOEREF_EXPORT_H
#define MOEREF_EXPORT_H

#include "case.h"

struct mr_export {
    const char *folder, *phase; /* phase NULL: all */
    const bool *layers;         /* [mr_case_layer_count], the ones to write; NULL: all */
    bool logits;                /* a case that starts from logits of that type, instead */
    enum mr_dtype type;         /* F32, BF16 or F16 */
    long seed;                  /* what a generated case was loaded with; negative: its own */
};

/* Writes FOLDER/NAME.json and FOLDER/NAME.safetensors; NAME is the case's, with logits
 * NAME.fp32-logits (bf16, fp16). What was observed goes with it, and "arith", "profile" and
 * "replay", which are about that; not so with logits: those numbers are mr_rounded_logits's, and
 * nobody has observed what comes of them. "expect" stays behind.
 * A file that is there already and has other bytes is left as it is: MR_ERR_IO. MR_ERR_UNSUPPORTED:
 * a layer that chooses experts by token id, or whose gate weight differs from phase to phase. */
enum mr_status mr_export_write(struct mr_case *c, const struct mr_export *how,
                               struct mr_error *err);

#endif
