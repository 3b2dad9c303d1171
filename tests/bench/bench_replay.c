/* Whole GEMMs under an arithmetic: GMAC/s of mr_replay_rows over blocks of 16 rows, packing of the
 * gate weight included. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/arith/replay.h"
#include "bench.h"

enum { ROWS = 16, REPEATS = 3 };

/* Seconds; the sum of all words goes to *check, so that nothing is left out. NaN if it fails. */
static double once(const struct bench_input *in, size_t tokens, const char *line, int threads,
                   uint64_t *check)
{
    struct mr_arith arith;
    struct mr_replay *replay = NULL;
    struct mr_gemm gemm = {.hidden = {in->x, MR_BF16, tokens, in->hidden},
                           .gate = {in->w, MR_BF16, in->experts, in->hidden}};
    bool failed = mr_arith_parse(line, &arith, NULL) != MR_OK;
    uint64_t sum = 0;
    double start = bench_now();
    if (!failed) failed = mr_replay_new(&arith, &gemm, &replay, NULL) != MR_OK;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(+ : sum) \
    reduction(|| : failed)
    for (size_t i = 0; i < tokens / ROWS; i++) {
        float *out = malloc(ROWS * in->experts * sizeof *out);
        failed = failed || !out || mr_replay_rows(replay, i * ROWS, ROWS, out, NULL) != MR_OK;
        for (size_t j = 0; !failed && j < ROWS * in->experts; j++) {
            uint32_t word;
            memcpy(&word, &out[j], sizeof word);
            sum += word;
        }
        free(out);
    }
    double seconds = bench_now() - start;
    mr_replay_free(replay);
    *check = sum;
    return failed ? 0.0 / 0.0 : seconds;
}

json_t *bench_replay(const struct bench_input *in, int threads)
{
    static const struct {
        const char *line;
        size_t tokens; /* slower ones take fewer */
    } rows[] = {{"fma", 8192},
                {"fma/deal:6x8", 8192},
                {"fma/deal:32:halves", 8192},
                {"mul-add/even:64", 8192},
                {"hopper-bf16/runs:3x64", 4096},
                {"hopper-bf16/deal:64x32", 1024}};
    json_t *report = json_object();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double t[REPEATS];
        uint64_t check[REPEATS];
        bench_settle();
        for (int r = 0; r < REPEATS; r++) {
            t[r] = once(in, rows[i].tokens, rows[i].line, threads, &check[r]);
            if (check[r] != check[0]) t[r] = 0.0 / 0.0;
        }
        double gmacs = 1e-9 * (double)rows[i].tokens * (double)in->hidden * (double)in->experts /
                       bench_median(t, REPEATS);
        printf("replay %-24s %6.2f GMAC/s\n", rows[i].line, gmacs);
        json_object_set_new(report, rows[i].line, json_real(gmacs));
    }
    return report;
}
