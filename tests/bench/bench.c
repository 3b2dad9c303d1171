/* Certified routing against a bare dgemm of the same shape, 8192 x 4096 x 288 (DESIGN section 9).
 * usage: bench OUT.json | bench --dgemm | bench --mma NAME ROWS (used by itself) */
#include "bench.h"

#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../ref/io/generate.h"
#include "../../ref/isa.h"
#include "../../ref/num/num.h"

enum { TOKENS = 8192, HIDDEN = 4096, EXPERTS = 288, TOP_K = 8, REPEATS = 9 };

static _Noreturn void stop(const char *why)
{
    fprintf(stderr, "bench: %s\n", why);
    exit(1);
}

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, ascending);
    return v[n / 2];
}

static struct bench_input make_input(const char *generate)
{
    struct bench_input in = {.tokens = TOKENS, .hidden = HIDDEN, .experts = EXPERTS};
    in.sigmoid = (struct mr_router){.experts = EXPERTS, .top_k = TOP_K, .hidden = HIDDEN,
                                    .score = MR_SCORE_SIGMOID, .bias = true, .n_group = 1,
                                    .topk_group = 1, .norm_topk_prob = true,
                                    .routed_scaling_factor = 2.5};
    in.softmax = in.sigmoid;
    in.softmax.score = MR_SCORE_SOFTMAX;
    in.softmax.bias = false;
    struct mr_error err = {{0}};
    struct mr_generated g;
    json_t *spec = json_loads(generate, 0, NULL);
    if (!spec || mr_generate_layer(spec, &in.sigmoid, 1, 0, "all", &g, &err)) stop(err.text);
    json_decref(spec);
    in.x = g.hidden;
    in.w = g.gate;
    in.bias = malloc(EXPERTS * sizeof *in.bias);
    for (int e = 0; e < EXPERTS; e++) in.bias[e] = g.bias[e];
    free(g.bias);
    in.x64 = malloc(in.tokens * in.hidden * sizeof *in.x64);
    in.w64 = malloc(in.experts * in.hidden * sizeof *in.w64);
    if (!in.x64 || !in.w64) stop("out of memory");
    mr_widen_f64(in.x, MR_BF16, in.tokens * in.hidden, in.x64);
    mr_widen_f64(in.w, MR_BF16, in.experts * in.hidden, in.w64);
    return in;
}

static void free_input(struct bench_input *in)
{
    free(in->x);
    free(in->w);
    free(in->bias);
    free(in->x64);
    free(in->w64);
}

struct mr_layer bench_layer(const struct bench_input *in, const struct mr_router *router)
{
    return (struct mr_layer){.router = router,
                             .hidden = {in->x, MR_BF16, in->tokens, in->hidden},
                             .gate = {in->w, MR_BF16, in->experts, in->hidden},
                             .bias = router->bias ? in->bias : NULL};
}

/* Idle threads of OpenBLAS and libgomp spin for tens of milliseconds before they sleep: what is timed
 * next shall have the cores to itself. */
void bench_settle(void)
{
    usleep(150000);
}

/* Answers of a whole layer, kept for comparison. */
struct answers {
    int32_t *ids;
    double *weights, *gap;
    uint8_t *certificate;
};

static struct answers answers_new(void)
{
    return (struct answers){malloc(TOKENS * TOP_K * sizeof(int32_t)),
                            malloc(TOKENS * TOP_K * sizeof(double)), malloc(TOKENS * sizeof(double)),
                            malloc(TOKENS)};
}

static enum mr_status keep(void *context, const struct mr_rows *r, struct mr_error *err)
{
    (void)err;
    struct answers *a = context;
    memcpy(a->ids + r->first * TOP_K, r->ids, r->rows * TOP_K * sizeof *r->ids);
    memcpy(a->weights + r->first * TOP_K, r->weights, r->rows * TOP_K * sizeof *r->weights);
    memcpy(a->gap + r->first, r->gap, r->rows * sizeof *r->gap);
    memcpy(a->certificate + r->first, r->certificate, r->rows);
    return MR_OK;
}

static double route(const struct bench_input *in, const struct mr_router *router,
                    struct mr_route_options options, struct answers *answers,
                    struct mr_flips *flips, struct mr_route_result *result)
{
    struct mr_layer layer = bench_layer(in, router);
    struct mr_error err = {{0}};
    options.rows = keep;
    options.context = answers;
    if (flips) memset(flips, 0, options.arith_count * sizeof *flips);
    bench_settle();
    double start = bench_now();
    if (mr_route_layer(&layer, &options, result, flips, &err)) stop(err.text);
    return bench_now() - start;
}

/* The timed answers against a run in which every logit is exact and no BLAS is used. */
static void compare(const char *what, const struct answers *timed, const struct answers *exact)
{
    if (memcmp(timed->ids, exact->ids, TOKENS * TOP_K * sizeof *timed->ids)) stop(what);
    if (memcmp(timed->weights, exact->weights, TOKENS * TOP_K * sizeof(double))) stop(what);
    for (size_t t = 0; t < TOKENS; t++) {
        if (!(fabs(timed->gap[t] - exact->gap[t]) <= 1e-12)) stop(what);
        bool tie = timed->certificate[t] == MR_CERT_TIE;
        if (timed->certificate[t] >= MR_CERT_UNDECIDED) stop(what);
        if (tie != (exact->certificate[t] == MR_CERT_TIE)) stop(what);
    }
}

static void cpu_name(char *name, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(name, size, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "model name", 10)) continue;
        snprintf(name, size, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"),
                 strchr(line, ':') + 2);
        break;
    }
    if (f) fclose(f);
}

struct timing {
    double dgemm, sigmoid, softmax, arith, verify, refined;
};

static struct timing time_all(const struct bench_input *in, int threads)
{
    static const char *const lines[4] = {"fp32", "bf16-logits", "bf16-bias",
                                         "bf16-logits+bf16-bias"};
    struct mr_arith arith[4];
    for (int i = 0; i < 4; i++) mr_arith_parse(lines[i], &arith[i], NULL);
    struct answers timed = answers_new(), exact = answers_new();
    struct mr_flips *flips = calloc(4, sizeof *flips);
    double *c = malloc(TOKENS * EXPERTS * sizeof *c), t[5][REPEATS];
    struct mr_route_options plain = {.threads = threads}, emulate = plain, slow = plain;
    emulate.arith = arith;
    emulate.arith_count = 4;
    slow.without_blas = true;
    struct mr_route_result result;
    struct timing out = {0};
    for (int r = -1; r < REPEATS; r++) { /* the first round warms up */
        double now[5];
        now[0] = bench_dgemm(in, c, threads);
        now[1] = route(in, &in->sigmoid, plain, &timed, NULL, &result);
        out.refined = 1 - (double)result.certified[MR_CERT_BOUND] / TOKENS;
        if (r < 0) {
            route(in, &in->sigmoid, slow, &exact, NULL, &result);
            compare("sigmoid: timed and exact answers differ", &timed, &exact);
        }
        now[4] = bench_verify(in, threads, timed.ids, timed.weights);
        if (!(now[4] > 0)) stop("verify does not find the certified answers exact");
        now[2] = route(in, &in->softmax, plain, &timed, NULL, &result);
        if (r < 0) {
            route(in, &in->softmax, slow, &exact, NULL, &result);
            compare("softmax: timed and exact answers differ", &timed, &exact);
        }
        now[3] = route(in, &in->sigmoid, emulate, &timed, flips, &result);
        for (int i = 0; i < 5 && r >= 0; i++) t[i][r] = now[i];
    }
    out.dgemm = bench_median(t[0], REPEATS);
    out.sigmoid = bench_median(t[1], REPEATS);
    out.softmax = bench_median(t[2], REPEATS);
    out.arith = bench_median(t[3], REPEATS);
    out.verify = bench_median(t[4], REPEATS);
    free(c);
    free(flips);
    free(timed.ids), free(timed.weights), free(timed.gap), free(timed.certificate);
    free(exact.ids), free(exact.weights), free(exact.gap), free(exact.certificate);
    return out;
}

int main(int argc, char **argv)
{
    /* As the program itself does; a kernel that the user set, or OpenBLAS chose well, is left. */
    const char *better = mr_openblas_better_core(), *found = getenv("OPENBLAS_CORETYPE");
    if (better && !setenv("OPENBLAS_CORETYPE", better, 1)) execv("/proc/self/exe", argv);
    int threads = omp_get_max_threads();
    if (argc == 4 && !strcmp(argv[1], "--mma"))
        return bench_mma_child(argv[2], strtoul(argv[3], NULL, 10), HIDDEN, EXPERTS);
    struct bench_input in =
        make_input("{\"class\":\"normal\",\"seed\":1,\"tokens\":{\"all\":8192},"
                   "\"bias_low\":11.54,\"bias_high\":11.96}");
    if (argc == 2 && !strcmp(argv[1], "--dgemm")) return bench_dgemm_child(&in, threads);
    if (argc != 2) stop("usage: bench OUT.json");
    char cpu[128];
    cpu_name(cpu, sizeof cpu);
    struct timing t = time_all(&in, threads);
    double flop = 2.0 * TOKENS * HIDDEN * EXPERTS;
    json_t *others = json_object(), *paths = json_object();
    double base = t.dgemm * fmin(1, bench_other_coretypes(argv[0], &in, threads, others));
    bench_exact_paths(paths);
    json_t *gemms = bench_replay(&in, threads);
    double peak = bench_peak_memory(&in, 8 * TOKENS);
    free_input(&in);
    struct bench_input model =
        make_input("{\"class\":\"glm-5.3-flash\",\"seed\":1,\"tokens\":{\"all\":8192}}");
    struct timing m = time_all(&model, threads);
    free_input(&model);
    json_t *replay = json_object();
    struct bench_mma mma = bench_mma(argv[0], HIDDEN, EXPERTS, replay);
    if (!(mma.bf16 > 0 && mma.fp8 > 0 && mma.portable > 0)) stop("tensor-core replay is wrong");
    printf("%s, %d threads, %s, loops %s, OpenBLAS %s (OPENBLAS_CORETYPE %s)\n", cpu, threads,
           __VERSION__, mr_isa_name(mr_isa_best()), openblas_get_corename(),
           found ? found : "not set");
    printf("dgemm %d x %d x %d: %.1f ms, %.1f GFLOP/s; fastest right kernel %.1f ms\n", TOKENS,
           HIDDEN, EXPERTS, 1e3 * t.dgemm, 1e-9 * flop / t.dgemm, 1e3 * base);
    printf("certified sigmoid  %6.1f ms  %.2f of dgemm (goal 0.75)\n", 1e3 * t.sigmoid,
           t.sigmoid / base);
    printf("certified softmax  %6.1f ms  %.2f of dgemm (goal 1.60)\n", 1e3 * t.softmax,
           t.softmax / base);
    printf("four arithmetics   %6.1f ms  %.2f of dgemm (goal 1.60)\n", 1e3 * t.arith,
           t.arith / base);
    printf("verify             %6.1f ms  %.2f of certified sigmoid (goal 1.20)\n", 1e3 * t.verify,
           t.verify / t.sigmoid);
    printf("glm-5.3-flash inputs: %.2f, %.2f, %.2f of dgemm\n", m.sigmoid / m.dgemm,
           m.softmax / m.dgemm, m.arith / m.dgemm);
    printf("tokens that the filter alone does not settle: %.2f %% (glm-5.3-flash %.2f %%); peak "
           "memory beyond the input %.0f MiB\n",
           100 * t.refined, 100 * m.refined, peak);
    printf("tensor-core replay: bf16 %.2f GMAC/s (8192 rows in %.2f s), fp8 %.2f, portable %.2f\n",
           mma.bf16, mma.seconds, mma.fp8, mma.portable);
    json_t *doc = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:i, s:s, s:s, s:s, s:s, s:o, s:o, s:o}",
        "tensor_core_gmacs_bf16", mma.bf16, "tensor_core_gmacs_fp8", mma.fp8,
        "tensor_core_gmacs_portable", mma.portable, "tensor_core_seconds_8192", mma.seconds,
        "certified_vs_dgemm", t.sigmoid / base, "certified_softmax_vs_dgemm", t.softmax / base,
        "arith_vs_dgemm", t.arith / base, "verify_vs_route", t.verify / t.sigmoid, "refined_share", t.refined, "peak_extra_mib", peak,
        "dgemm_gflops", 1e-9 * flop / t.dgemm, "model_certified_vs_dgemm", m.sigmoid / m.dgemm,
        "model_softmax_vs_dgemm", m.softmax / m.dgemm, "model_arith_vs_dgemm", m.arith / m.dgemm,
        "machine", cpu, "threads", threads, "compiler", __VERSION__, "isa",
        mr_isa_name(mr_isa_best()), "openblas_core", openblas_get_corename(), "OPENBLAS_CORETYPE",
        found ? found : "", "other_coretypes", others, "exact_paths", paths,
        "tensor_core", replay);
    if (doc) json_object_set_new(doc, "replay_gmacs", gemms);
    if (!doc || json_dump_file(doc, argv[1], JSON_INDENT(1) | JSON_REAL_PRECISION(6)))
        stop("cannot write the JSON file");
    json_decref(doc);
    return 0;
}
