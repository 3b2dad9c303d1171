/* A second tensor-core step, for the tests: GMP integers at one fixed scale, so a term is cut by
 * dividing and nothing is aligned by shifts. Shares no code with ref/arith. */
#ifndef MMA_ORACLE_H
#define MMA_ORACLE_H

#include <stdbool.h>
#include <stddef.h>

#include "mma_classes.h"

enum oracle_form {
    ORACLE_FUSED,   /* one sum of `terms` products and c */
    ORACLE_BY_FP16, /* fp8 as the compiler expands mma.sync: two fp16 sums from zero, then c added
                     */
    ORACLE_INTEGER, /* s8 x s8 -> s32, modulo 2^32 */
    ORACLE_SATURATE /* the same, kept within s32 */
};

struct oracle_rule {
    enum oracle_form form;
    int terms;  /* products of one sum; k beyond it is a chain */
    int bits;   /* F: bits kept below the largest exponent */
    int result; /* fraction bits of an fp32 result, toward zero: 23 or 13; fp16 is 10 to nearest */
    int e_zero; /* exponent of zero terms */
    bool plain_zero; /* a sum that rounds to zero gives +0, whatever its sign */
    bool negate;     /* every product */
};

uint32_t oracle_step(const struct mma_set *set, const struct oracle_rule *rule, const uint32_t *a,
                     const uint32_t *b, size_t k, uint32_t c);

/* The rule of an instruction by its name in data/mma-h200 (mma.m16n8k16.f32.bf16.bf16, ...), and
 * whether it ignores c (+z). false: a name that no rule is known for. */
bool oracle_rule_of(const char *instruction, struct oracle_rule *rule, bool *no_c);

#endif
