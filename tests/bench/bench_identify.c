/* How long it takes to name what made a layer's logits: real recordings of an H200. */
#include "bench.h"

#include <math.h>
#include <stdio.h>

#include "../../ref/arith/identify.h"
#include "../../ref/io/case.h"

enum { REPEATS = 3 };

static struct mr_matrix matrix_of(const struct mr_tensor *t)
{
    return (struct mr_matrix){t->data, t->dtype, (size_t)t->shape[0], (size_t)t->shape[1]};
}

/* Median seconds for one layer of one phase; NaN if nothing is named. */
static double time_one(struct mr_case *c, int layer, const char *phase, int repeats)
{
    struct mr_case_layer l;
    double seconds[REPEATS];
    if (mr_case_get(c, layer, phase, &l, NULL)) return NAN;
    struct mr_gemm gemm = {.hidden = matrix_of(&l.hidden), .gate = matrix_of(&l.gate)};
    struct mr_matrix observed = matrix_of(&l.logits);
    for (int i = 0; i < repeats; i++) {
        struct mr_identified found;
        bench_settle();
        double start = bench_now();
        if (mr_identify(&gemm, &observed, NULL, &found, NULL)) return NAN;
        seconds[i] = bench_now() - start;
        bool named = found.lines > 0;
        mr_identified_free(&found);
        if (!named) return NAN;
    }
    return bench_median(seconds, (size_t)repeats);
}

double bench_identify(json_t *report)
{
    struct mr_case *cublas, *glm;
    struct mr_error err;
    if (mr_case_load("cases/cublas-h200.json", NULL, &cublas, &err) ||
        mr_case_load("cases/glm4moe-tiny.json", NULL, &glm, &err)) {
        fprintf(stderr, "bench: %s\n", err.text);
        return NAN;
    }
    int layer = mr_case_layer_number(cublas, 0);
    double all = 0, m96 = time_one(cublas, layer, "m96", REPEATS),
           simt = time_one(cublas, layer, "fp32_in_m96", REPEATS),
           prefill = time_one(glm, 3, "prefill", REPEATS);
    for (size_t p = 0; p < mr_case_phase_count(cublas); p++)
        all += time_one(cublas, layer, mr_case_phase(cublas, p), 1);
    json_object_set_new(report, "m96", json_real(m96));
    json_object_set_new(report, "fp32_in_m96", json_real(simt));
    json_object_set_new(report, "glm4moe_tiny_prefill_3", json_real(prefill));
    json_object_set_new(report, "cublas_h200_all_17", json_real(all));
    mr_case_free(cublas);
    mr_case_free(glm);
    return fmax(fmax(m96, simt), prefill) + 0 * all;
}
