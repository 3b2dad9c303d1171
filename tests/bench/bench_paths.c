/* What the parts of the exact path cost, and how much memory a long run takes. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../ref/exact/exact.h"
#include "../../ref/num/num.h"
#include "bench.h"

enum { N = 4096, ROWS = 64 };

/* Rows that force each way: ordinary numbers, two distant groups of exponents, and more distant
 * ones. */
static void fill(uint16_t *x, int low)
{
    uint32_t s = 12345;
    for (int i = 0; i < N; i++) {
        s = s * 1664525u + 1013904223u;
        double v = 1 + (double)(s >> 8) / (1 << 24);
        if (i % 7 == 0) v = ldexp(v, low);
        x[i] = mr_bf16_encode(s & 64 ? -v : v, MR_RNE, MR_OVERFLOW_IEEE);
    }
}

static struct mr_row_stats stats_of(const float *v)
{
    struct mr_row_scan scan;
    mr_row_scan_begin(&scan);
    mr_row_scan_add(&scan, v, N);
    return mr_row_scan_end(&scan, MR_BF16);
}

static double time_way(int low, enum mr_dot_way expect)
{
    static uint16_t x[N], w[N];
    static float x32[N], w32[N];
    static double x64[N];
    fill(x, low);
    fill(w, -3);
    mr_widen_f32(x, MR_BF16, N, x32);
    mr_widen_f32(w, MR_BF16, N, w32);
    mr_widen_f64(x, MR_BF16, N, x64);
    struct mr_row_stats sx = stats_of(x32), sw = stats_of(w32);
    struct mr_dot_plan plan = mr_dot_choose(&sx, &sw, N);
    if (plan.way != expect) return NAN;
    double t[15], sink = 0;
    mpfr_t value;
    mpfr_init2(value, 64);
    for (int r = 0; r < 15; r++) {
        double start = bench_now();
        for (int i = 0; i < ROWS; i++) {
            if (plan.way == MR_DOT_BINS) {
                mr_bins_dot(x, MR_BF16, w, MR_BF16, N, value);
                sink += mr_exact_from_mpfr(value).hi;
            } else {
                sink += mr_dot_f32(plan, x64, w32, N).hi;
            }
        }
        t[r] = (bench_now() - start) / ROWS;
    }
    mpfr_clear(value);
    return sink == 42 ? 0 : 1e6 * bench_median(t, 15);
}

/* Certified routing of rows whose exact dots all need bins, against ordinary rows. */
static double time_rows(int low)
{
    enum { TOKENS = 256, EXPERTS = 288 };
    uint16_t *x = malloc(TOKENS * N * sizeof *x), *w = malloc(EXPERTS * N * sizeof *w);
    for (int t = 0; t < TOKENS; t++) fill(x + t * N, low);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < N; i += 5) x[t * N + i] ^= (uint16_t)((t * 2654435761u >> (i % 13)) & 0x8040);
    uint32_t s = 99;
    for (int i = 0; i < EXPERTS * N; i++) {
        s = s * 1664525u + 1013904223u;
        w[i] = mr_bf16_encode(((double)(s >> 8) / (1 << 23) - 1) * 0.03, MR_RNE, MR_OVERFLOW_IEEE);
    }
    struct mr_router r = {.experts = EXPERTS, .top_k = 8, .hidden = N, .score = MR_SCORE_SIGMOID,
                          .n_group = 1, .topk_group = 1, .norm_topk_prob = true,
                          .routed_scaling_factor = 1};
    struct mr_layer layer = {.router = &r, .hidden = {x, MR_BF16, TOKENS, N},
                             .gate = {w, MR_BF16, EXPERTS, N}};
    struct mr_route_options options = {0};
    struct mr_route_result result;
    double t[5];
    for (int i = 0; i < 5; i++) {
        double start = bench_now();
        if (mr_route_layer(&layer, &options, &result, NULL, NULL)) return NAN;
        t[i] = 1e6 * (bench_now() - start) / TOKENS;
    }
    free(x);
    free(w);
    return bench_median(t, 5);
}

void bench_exact_paths(json_t *report)
{
    double plain = time_way(-6, MR_DOT_PLAIN), split = time_way(-30, MR_DOT_SPLIT),
           bins = time_way(-90, MR_DOT_BINS), rows = time_rows(-6), bin_rows = time_rows(-90);
    printf("one exact dot of %d: plain %.2f us, split %.2f us, bins %.2f us\n", N, plain, split,
           bins);
    printf("certified token: %.1f us, with every exact dot by bins %.1f us\n", rows, bin_rows);
    json_object_set_new(report, "plain_dot_us", json_real(plain));
    json_object_set_new(report, "split_dot_us", json_real(split));
    json_object_set_new(report, "bins_dot_us", json_real(bins));
    json_object_set_new(report, "token_us", json_real(rows));
    json_object_set_new(report, "bins_token_us", json_real(bin_rows));
}

static double anonymous_mib(void)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %lf", &kib) == 1) break;
    if (f) fclose(f);
    return kib / 1024;
}

static enum mr_status sample(void *context, const struct mr_rows *rows, struct mr_error *err)
{
    (void)rows;
    (void)err;
    double *peak = context, now = anonymous_mib();
    if (now > *peak) *peak = now;
    return MR_OK;
}

double bench_peak_memory(const struct bench_input *in, size_t tokens)
{
    FILE *f = tmpfile();
    size_t bytes = in->tokens * in->hidden * sizeof *in->x;
    for (size_t t = 0; f && t < tokens; t += in->tokens) fwrite(in->x, 1, bytes, f);
    if (!f || fflush(f)) return NAN;
    void *map = mmap(NULL, bytes / in->tokens * tokens, PROT_READ, MAP_SHARED, fileno(f), 0);
    if (map == MAP_FAILED) return NAN;
    struct mr_layer layer = bench_layer(in, &in->sigmoid);
    layer.hidden.data = map;
    layer.hidden.rows = tokens;
    struct mr_arith arith[2];
    mr_arith_parse("fp32", &arith[0], NULL);
    mr_arith_parse("bf16-logits+bf16-bias", &arith[1], NULL);
    malloc_trim(0); /* or the run would live in what earlier ones left behind */
    double before = anonymous_mib(), peak = before;
    struct mr_flips *flips = calloc(2, sizeof *flips);
    struct mr_route_result result;
    struct mr_route_options options = {
        .arith = arith, .arith_count = 2, .rows = sample, .context = &peak};
    if (mr_route_layer(&layer, &options, &result, flips, NULL)) peak = NAN;
    free(flips);
    munmap(map, bytes / in->tokens * tokens);
    fclose(f);
    return peak - before;
}
