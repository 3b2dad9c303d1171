/* The yardstick: one full dgemm call, by the kernel that OpenBLAS chose and by others. */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../ref/isa.h"
#include "bench.h"

double bench_dgemm(const struct bench_input *in, double *c, int threads)
{
    openblas_set_num_threads(threads);
    bench_settle();
    double start = bench_now();
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)in->tokens, (blasint)in->experts,
                (blasint)in->hidden, 1, in->x64, (blasint)in->hidden, in->w64, (blasint)in->hidden,
                0, c, (blasint)in->experts);
    double seconds = bench_now() - start;
    openblas_set_num_threads(1);
    return seconds;
}

/* Every 61st element against a compensated sum: a kernel that computes wrong is no yardstick. */
static int wrong(const struct bench_input *in, const double *c)
{
    for (size_t at = 0; at < in->tokens * in->experts; at += 61) {
        const double *x = in->x64 + at / in->experts * in->hidden;
        const double *w = in->w64 + at % in->experts * in->hidden;
        double sum = 0, lost = 0, size = 0;
        for (size_t i = 0; i < in->hidden; i++) {
            struct mr_dd s = mr_two_sum(sum, x[i] * w[i]);
            sum = s.hi;
            lost += s.lo;
            size += fabs(x[i] * w[i]);
        }
        if (!(fabs(c[at] - (sum + lost)) <= 0x1p-53 * (double)in->hidden * size)) return 1;
    }
    return 0;
}

int bench_dgemm_child(const struct bench_input *in, int threads)
{
    double *c = malloc(in->tokens * in->experts * sizeof *c), t[5];
    if (!c) return 1;
    bench_dgemm(in, c, threads);
    if (wrong(in, c)) return 2;
    for (int r = 0; r < 5; r++) t[r] = bench_dgemm(in, c, threads);
    printf("%s %.6f\n", openblas_get_corename(), bench_median(t, 5));
    free(c);
    return 0;
}

static double as_found(const struct bench_input *in, double *c, int threads)
{
    double t[5];
    for (int r = 0; r < 5; r++) t[r] = bench_dgemm(in, c, threads);
    return bench_median(t, 5);
}

double bench_other_coretypes(const char *program, const struct bench_input *in, int threads,
                             json_t *report)
{
    static const char *const names[] = {"Haswell", "Zen", "SkylakeX", "Cooperlake", "Sandybridge"};
    double best = HUGE_VAL, *c = malloc(in->tokens * in->experts * sizeof *c);
    if (!c) return best;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(names[i], openblas_get_corename())) continue; /* the one as found */
        if ((!strcmp(names[i], "SkylakeX") || !strcmp(names[i], "Cooperlake")) &&
            mr_isa_best() != MR_ISA_V4) {
            json_object_set_new(report, names[i], json_string("no AVX-512"));
            continue;
        }
        char command[4200], line[128] = "", core[64] = "";
        snprintf(command, sizeof command, "OPENBLAS_CORETYPE=%s '%s' --dgemm 2>/dev/null", names[i],
                 program);
        double before = as_found(in, c, threads);
        FILE *child = popen(command, "r");
        if (child && !fgets(line, sizeof line, child)) line[0] = 0;
        int status = child ? pclose(child) : -1;
        double seconds;
        if (status || sscanf(line, "%63s %lf", core, &seconds) != 2) {
            json_object_set_new(report, names[i],
                                json_string(WIFEXITED(status) && WEXITSTATUS(status) == 2
                                                ? "computes wrong"
                                                : "does not run"));
            continue;
        }
        double ratio = seconds / (0.5 * (before + as_found(in, c, threads)));
        json_object_set_new(report, names[i], json_pack("{s:s, s:f, s:f}", "core", core, "ms",
                                                        1e3 * seconds, "of_found", ratio));
        if (ratio < best) best = ratio;
    }
    free(c);
    return best;
}
