/* Chains of tensor-core steps for whole router GEMMs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "../../ref/arith/mma_chain.h"
#include "../../ref/isa.h"
#include "../../ref/num/num.h"
#include "bench.h"

enum { BLOCK = 64, REPEATS = 5, CHECKED = 64 };

static uint64_t next(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* About normal, n elements of bf16 or e4m3. */
static void *make(enum mr_mma_type type, size_t n, double size, uint64_t *s)
{
    unsigned bytes = mr_mma_types[type].bytes;
    unsigned char *out = malloc(n * bytes);
    for (size_t i = 0; out && i < n; i++) {
        double x = -4;
        for (int j = 0; j < 8; j++) x += (double)(next(s) >> 40) * 0x1p-24;
        x *= size * 1.2247; /* a sum of 8 uniforms has the variance 2 / 3 */
        uint32_t code = bytes == 1 ? mr_e4m3_encode(x, MR_RNE, MR_OVERFLOW_SATURATE)
                                   : mr_bf16_encode(x, MR_RNE, MR_OVERFLOW_SATURATE);
        memcpy(out + i * bytes, &code, bytes);
    }
    return out;
}

static double chain(const struct mr_mma_packed *packed, const struct mr_mma_operand *a,
                    size_t experts, unsigned bytes, uint32_t *d)
{
    double start = bench_now();
#pragma omp parallel for schedule(dynamic)
    for (size_t first = 0; first < a->rows; first += BLOCK) {
        struct mr_mma_operand rows = *a;
        rows.data = (const char *)a->data + first * a->pitch * bytes;
        rows.rows = a->rows - first < BLOCK ? a->rows - first : BLOCK;
        mr_mma_chain(packed, &rows, 0, a->cols, NULL, d + first * experts, NULL);
    }
    return bench_now() - start;
}

static bool wrong(const struct mr_mma *mma, const struct mr_mma_operand *a,
                  const struct mr_mma_operand *b, const uint32_t *d)
{
    uint32_t *x = calloc(2 * a->cols, sizeof *x), *y = x + a->cols;
    unsigned bytes = mr_mma_types[mma->a].bytes;
    bool bad = !x;
    for (size_t i = 0; !bad && i < CHECKED; i++) {
        size_t at = i * (a->rows * b->rows / CHECKED) + i, row = at / b->rows, col = at % b->rows;
        for (size_t k = 0; k < a->cols; k++) {
            memcpy(&x[k], (const char *)a->data + (row * a->cols + k) * bytes, bytes);
            memcpy(&y[k], (const char *)b->data + (col * a->cols + k) * bytes, bytes);
        }
        bad = mr_mma_step(mma, x, y, a->cols, 0, NULL) != d[at];
    }
    free(x);
    return bad;
}

int bench_mma_child(const char *name, size_t rows, size_t hidden, size_t experts)
{
    const struct mr_mma *mma = mr_mma_find(name, strlen(name));
    if (!mma) return 1;
    uint64_t s = 1;
    struct mr_mma_operand a = {make(mma->a, rows * hidden, 1, &s), rows, hidden, hidden, NULL, 0};
    struct mr_mma_operand b = {
        make(mma->b, experts * hidden, 0.25, &s), experts, hidden, hidden, NULL, 0};
    uint32_t *d = malloc(rows * experts * sizeof *d);
    struct mr_mma_packed *packed;
    double t[REPEATS];
    if (!a.data || !b.data || !d || mr_mma_pack(mma, &b, NULL, &packed, NULL)) return 1;
    chain(packed, &a, experts, mr_mma_types[mma->a].bytes, d);
    if (wrong(mma, &a, &b, d)) return 2;
    for (int r = 0; r < REPEATS; r++)
        t[r] = chain(packed, &a, experts, mr_mma_types[mma->a].bytes, d);
    printf("%s %.6f\n", mr_isa_name(mr_isa_best()), bench_median(t, REPEATS));
    return mr_mma_chain_fallbacks() ? 2 : 0;
}

/* Seconds, or NaN if the instruction set is not there or an output is wrong. */
static double child(const char *program, const char *isa, const char *name, size_t rows)
{
    char command[4200], line[128] = "", got[16];
    double seconds = NAN;
    snprintf(command, sizeof command, "MOEREF_ISA=%s '%s' --mma %s %zu", isa, program, name, rows);
    bench_settle();
    FILE *f = popen(command, "r");
    if (f && !fgets(line, sizeof line, f)) line[0] = 0;
    int status = f ? pclose(f) : -1;
    if (status || sscanf(line, "%15s %lf", got, &seconds) != 2 || strcmp(got, isa)) return NAN;
    return seconds;
}

struct bench_mma bench_mma(const char *program, size_t hidden, size_t experts, json_t *report)
{
    static const char *const isas[] = {"base", "v3", "v4"};
    static const char *const names[] = {"hopper-bf16", "hopper-e4m3"};
    struct bench_mma out = {NAN, NAN, NAN, NAN};
    for (int i = 0; i < 3 && i <= (int)mr_isa_best(); i++) {
        json_t *line = json_object();
        bool best = i == (int)mr_isa_best();
        for (int n = 0; n < 2; n++) {
            size_t rows = best ? 8192 : 1024;
            double seconds = child(program, isas[i], names[n], rows);
            double gmacs = 1e-9 * (double)(rows * hidden * experts) / seconds;
            if (!(seconds > 0)) continue;
            json_object_set_new(line, names[n], json_real(gmacs));
            if (best && n == 0) out.bf16 = gmacs, out.seconds = seconds;
            if (best && n == 1) out.fp8 = gmacs;
            if (i == 0 && n == 0) out.portable = gmacs;
        }
        json_object_set_new(report, isas[i], line);
    }
    return out;
}
