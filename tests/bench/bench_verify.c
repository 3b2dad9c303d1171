/* What judging costs beside routing: the certified answers, rounded to fp32, as a kernel's output. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/route/verify.h"
#include "bench.h"

double bench_verify(const struct bench_input *in, int threads, const int32_t *ids,
                    const double *weights)
{
    size_t k = (size_t)in->sigmoid.top_k, n = in->tokens * k;
    float *narrow = malloc(n * sizeof *narrow);
    uint64_t *counts = calloc(2 * in->experts, sizeof *counts);
    struct mr_findings worst;
    if (!narrow || !counts || mr_findings_new(16, (int)k, &worst)) return NAN;
    for (size_t i = 0; i < n; i++) narrow[i] = (float)weights[i];
    struct mr_observed observed = {
        .source = "bench", .rows = in->tokens, .tokens = in->tokens,
        .ids = {MR_I32, 2, {in->tokens, k}, ids, n * sizeof *ids},
        .weights = {MR_F32, 2, {in->tokens, k}, narrow, n * sizeof *narrow},
        .non_padded = UINT64_MAX};
    struct mr_verify_tally tally = {0};
    struct mr_verify_result result = {
        .tally = &tally, .gained = counts, .lost = counts + in->experts};
    struct mr_verify_options options = {
        .threads = threads, .model = mr_error_model(NULL), .phase = "all"};
    struct mr_layer layer = bench_layer(in, &in->sigmoid);
    bench_settle();
    double start = bench_now();
    enum mr_status status =
        mr_verify_layer(&layer, &options, &observed, 1, &result, &worst, NULL);
    double seconds = bench_now() - start;
    bool right = !status && tally.verdicts[MR_EXACT] == in->tokens;
    mr_findings_free(&worst);
    free(counts);
    free(narrow);
    return right ? seconds : NAN;
}
