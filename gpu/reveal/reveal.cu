/* What cuBLAS adds up, and in which order, on this GPU:
 *
 *     reveal record CASE.safetensors OUT-DIR    router logits at every row count of the row axis
 *     reveal trees OUT.safetensors [SECONDS]    the summation trees at those row counts (FPRev)
 *
 * record: CASE holds hidden_states [4, K] and gate_weight [N, K], bf16 (data/cublas-h200). The first
 * rows of each batch are those, the others random, which no result here depends on. Written are
 * logits.mROWS, logits.bf16_out_mROWS (widened) and logits.fp32_in_mROWS, fp32 [min(ROWS, 4), N],
 * as data/cublas-h200 has them, with the hidden states; and the same again of the first 128 experts
 * and 512 columns, with gate_weight too.
 *
 * trees: one file with N.K.KIND.mROWS.begin and .child (mr_tree of ref/arith/tree.h). Every row of a
 * GEMM is a row of masks, every column of W is ones; all columns must give the same bits. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "problem.h"

int main(int argc, char **argv)
{
    bool recording = argc == 4 && !strcmp(argv[1], "record");
    bool revealing = (argc == 3 || argc == 4) && !strcmp(argv[1], "trees");
    if (!recording && !revealing) {
        fprintf(stderr, "usage: reveal record CASE.safetensors OUT-DIR\n"
                        "       reveal trees OUT.safetensors [SECONDS]\n");
        return 2;
    }
    gemm_start();
    printf("cuBLAS %d\n", gemm_version());
    return recording ? record(argv[2], argv[3])
                     : reveal_trees(argv[2], argc > 3 ? atof(argv[3]) : 1e9);
}
