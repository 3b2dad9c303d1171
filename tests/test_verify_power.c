/* Power to detect on the captures: the share of tokens on which taking the first rejected expert
 * for the last selected is called WRONG, against a tight bound of its own making: logits, sums
 * of |p| and scores in long double, additions to nearest in any order (n - 1) 2^-24 sum|p|
 * (Jeannerod, Rump), one rounding to the logit's type and to the bias's, and 4 ulp for a score
 * and its key. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/case.h"
#include "../ref/num/num.h"
#include "support/cli.h"

Suite *suite_verify_power(void);

enum { E = 128, N = 512, K = 8 };

struct arith {
    const char *line;
    bool bf16_logits, bf16_bias;
};
static const struct arith ariths[] = {{"fp32", false, false},
                                      {"bf16-logits", true, false},
                                      {"bf16-bias", false, true},
                                      {"bf16-logits+bf16-bias", true, true}};
enum { ARITHS = 4 };

static double bf16(double x)
{
    return mr_bf16_decode(mr_bf16_encode((float)x, MR_RNE, MR_OVERFLOW_IEEE));
}

/* One expert's key as it is, and how low or high a kernel's can be. */
struct bounds {
    long double key;
    double lo, hi;
};

static struct bounds bounds_of(bool softmax, const struct arith *a, long double logit,
                               long double sum, long double max, double bias)
{
    long double r = (N - 1) * 0x1p-24L * sum;
    double low = (float)(logit - r), high = (float)(logit + r);
    if (a->bf16_logits) {
        low = bf16(low);
        high = bf16(high);
    }
    double b = a->bf16_bias ? bf16(bias) : bias;
    struct bounds out;
    if (softmax) { /* the common denominator orders nothing */
        out.key = expl(logit - max);
        out.lo = exp(low - (double)max) * (1 - 4 * 0x1p-24);
        out.hi = exp(high - (double)max) * (1 + 4 * 0x1p-24);
    } else {
        out.key = 1 / (1 + expl(-logit)) + (long double)bias;
        out.lo = 1 / (1 + exp(-low)) * (1 - 4 * 0x1p-24) + b;
        out.hi = 1 / (1 + exp(-high)) * (1 + 4 * 0x1p-24) + b;
        out.lo = (float)out.lo;
        out.hi = (float)out.hi;
    }
    return out;
}

static int descending(const void *a, const void *b)
{
    long double x = ((const struct bounds *)a)->key, y = ((const struct bounds *)b)->key;
    return (x < y) - (x > y);
}

/* Adds to wrong[a] the tokens of a layer that the bound separates; returns the tokens. */
static int count_layer(struct mr_case *c, int layer, const char *phase, int *wrong)
{
    static double gate[E * N], bias[E];
    struct mr_case_layer l;
    struct mr_error err;
    bool softmax = mr_case_router(c)->score == MR_SCORE_SOFTMAX;
    ck_assert_int_eq(mr_case_get(c, layer, phase, &l, &err), MR_OK);
    ck_assert(l.gate.shape[0] == E && l.gate.shape[1] == N && mr_case_router(c)->top_k == K);
    mr_widen_f64(l.gate.data, l.gate.dtype, E * N, gate);
    memset(bias, 0, sizeof bias);
    if (l.bias.data) mr_widen_f64(l.bias.data, l.bias.dtype, E, bias);
    int tokens = (int)l.hidden.shape[0];
    for (int t = 0; t < tokens; t++) {
        double x[N];
        long double logit[E], sum[E], max = -HUGE_VALL;
        mr_widen_f64((const char *)l.hidden.data + (size_t)t * N * 2, l.hidden.dtype, N, x);
        for (int e = 0; e < E; e++) {
            logit[e] = sum[e] = 0;
            for (int i = 0; i < N; i++) {
                double p = x[i] * gate[e * N + i]; /* exact */
                logit[e] += p;
                sum[e] += fabs(p);
            }
            if (logit[e] > max) max = logit[e];
        }
        for (int a = 0; a < ARITHS; a++) {
            struct bounds b[E];
            for (int e = 0; e < E; e++)
                b[e] = bounds_of(softmax, &ariths[a], logit[e], sum[e], max, bias[e]);
            qsort(b, E, sizeof *b, descending);
            wrong[a] += b[K - 1].lo > b[K].hi;
        }
    }
    return tokens;
}

static const struct {
    const char *path, *layers;
    int layer[2];
} captures[] = {{"cases/glm4moe-tiny.json", "1,5", {1, 5}},
                {"cases/qwen3moe-tiny.json", "0,4", {0, 4}}};

START_TEST(corroborate_power)
{
    struct mr_case *c;
    struct mr_error err;
    int wrong[ARITHS] = {0}, tokens = 0, found = 0;
    ck_assert_int_eq(mr_case_load(captures[_i].path, NULL, &c, &err), MR_OK);
    for (int i = 0; i < 4; i++)
        tokens += count_layer(c, captures[_i].layer[i / 2], i % 2 ? "decode" : "prefill", wrong);
    mr_case_free(c);
    cli("verify", captures[_i].path, "--layers", captures[_i].layers, "-v", "--json", "-");
    cli_fine();
    json_t *doc = cli_json(), *p;
    size_t i;
    json_array_foreach(json_object_get(doc, "power"), i, p) {
        ck_assert_int_eq(json_integer_value(json_object_get(p, "tokens")), tokens);
        for (int a = 0; a < ARITHS; a++) {
            if (strcmp(json_string_value(json_object_get(p, "arith")), ariths[a].line)) continue;
            int judged = (int)json_integer_value(json_object_get(p, "wrong"));
            if (getenv("MOEREF_LONG"))
                printf("%s, %s: %d of %d, bound %d\n", captures[_i].path, ariths[a].line, judged,
                       tokens, wrong[a]);
            ck_assert_msg(abs(judged - wrong[a]) * 100 <= tokens, "%s, %s: %d of %d, bound %d",
                          captures[_i].path, ariths[a].line, judged, tokens, wrong[a]);
            found++;
        }
    }
    ck_assert_int_eq(found, _i ? 2 : 4);
    json_decref(doc);
}
END_TEST

Suite *suite_verify_power(void)
{
    Suite *s = suite_create("verify_power");
    TCase *c = tcase_create("power");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, corroborate_power, 0, 2);
    suite_add_tcase(s, c);
    return s;
}
