/* The generator of synthetic layers. */
#include <cblas.h>
#include <check.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/generate.h"
#include "../ref/num/num.h"

static struct mr_router router(int experts, int hidden)
{
    return (struct mr_router){.experts = experts,
                              .top_k = 8,
                              .hidden = hidden,
                              .score = MR_SCORE_SIGMOID,
                              .bias = true,
                              .n_group = 1,
                              .topk_group = 1,
                              .norm_topk_prob = true,
                              .routed_scaling_factor = 2.5};
}

static json_t *parse(const char *text)
{
    json_error_t e;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    ck_assert_msg(object != NULL, "%s: %s", text, e.text);
    return object;
}

static struct mr_generated make(const char *text, const struct mr_router *r, long seed, int layer,
                                const char *phase)
{
    json_t *object = parse(text);
    struct mr_error err = {""};
    struct mr_generated g;
    ck_assert_msg(mr_generate_check(object, r, "case.json", &err) == MR_OK, "%s", err.text);
    ck_assert_msg(mr_generate_layer(object, r, seed, layer, phase, &g, &err) == MR_OK, "%s",
                  err.text);
    json_decref(object);
    return g;
}

static uint64_t fnv(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Checksums (FNV-1a) by a second implementation, in Python integers and exact fractions: any change
 * of a single bit of the generator is seen, on every compiler. */
START_TEST(corroborate_bytes_with_python)
{
    static const struct {
        const char *text;
        uint64_t hidden, gate, bias;
    } known[] = {
        {"{\"class\":\"glm-5.3-flash\",\"tokens\":{\"prompt\":5}}", UINT64_C(0xeed968472ecb05ba),
         UINT64_C(0x1f8b3c00a78c2179), UINT64_C(0x85ab117de96f6a80)},
        {"{\"class\":\"normal\",\"tokens\":{\"prompt\":5},\"bias_low\":-1.5,\"bias_high\":2.25}",
         UINT64_C(0xe593fa5c3c58da15), UINT64_C(0xe6c2669d828398b4), UINT64_C(0xf1c7d3eae2f49f59)},
    };
    struct mr_router r = router(24, 1100);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct mr_generated g = make(known[i].text, &r, 7, 3, "prompt");
        ck_assert_uint_eq(g.tokens, 5);
        ck_assert_uint_eq(fnv(g.hidden, 5 * 1100 * sizeof *g.hidden), known[i].hidden);
        ck_assert_uint_eq(fnv(g.gate, 24 * 1100 * sizeof *g.gate), known[i].gate);
        ck_assert_uint_eq(fnv(g.bias, 24 * sizeof *g.bias), known[i].bias);
        mr_generated_free(&g);
        ck_assert_ptr_null(g.hidden);
    }
}
END_TEST

#define GLM "{\"class\":\"glm-5.3-flash\",\"tokens\":"

static const char *const both[] = {
    "{\"class\":\"glm-5.3-flash\",\"seed\":4,\"tokens\":{\"a\":100,\"b\":130},\"layers\":[2,0]}",
    "{\"class\":\"normal\",\"seed\":4,\"tokens\":{\"a\":100,\"b\":130},\"layers\":[2,0],"
    "\"bias_low\":1,\"bias_high\":2}",
};

START_TEST(verify_arguments_decide)
{
    enum { E = 40, H = 520 };
    struct mr_router r = router(E, H);
    struct mr_generated same = make(both[_i], &r, 4, 0, "a"), g = make(both[_i], &r, -1, 0, "a");
    size_t hidden = 100 * H * sizeof *g.hidden, gate = E * H * sizeof *g.gate;
    ck_assert_mem_eq(g.hidden, same.hidden, hidden);
    ck_assert_mem_eq(g.gate, same.gate, gate);
    ck_assert_mem_eq(g.bias, same.bias, E * sizeof *g.bias);
    mr_generated_free(&same);

    struct mr_generated seed = make(both[_i], &r, 5, 0, "a"),
                        layer = make(both[_i], &r, -1, 2, "a");
    ck_assert_mem_ne(g.hidden, seed.hidden, hidden);
    ck_assert_mem_ne(g.gate, seed.gate, gate);
    ck_assert_mem_ne(g.bias, seed.bias, E * sizeof *g.bias);
    ck_assert_mem_ne(g.hidden, layer.hidden, hidden);
    ck_assert_mem_ne(g.gate, layer.gate, gate);
    ck_assert_mem_ne(g.bias, layer.bias, E * sizeof *g.bias);
    mr_generated_free(&seed);
    mr_generated_free(&layer);

    struct mr_generated phase = make(both[_i], &r, -1, 0, "b");
    ck_assert_uint_eq(phase.tokens, 130);
    ck_assert_mem_ne(g.hidden, phase.hidden, hidden);
    ck_assert_mem_eq(g.gate, phase.gate, gate);
    ck_assert_mem_eq(g.bias, phase.bias, E * sizeof *g.bias);
    mr_generated_free(&phase);
    mr_generated_free(&g);
}
END_TEST

START_TEST(verify_threads_and_length_do_not_matter)
{
    enum { E = 90, H = 300 };
    struct mr_router r = router(E, H);
    omp_set_num_threads(1);
    struct mr_generated one = make(GLM "{\"p\":200}}", &r, 1, 0, "p");
    omp_set_num_threads(3);
    struct mr_generated three = make(GLM "{\"p\":70}}", &r, 1, 0, "p");
    ck_assert_mem_eq(one.hidden, three.hidden, 70 * H * sizeof *one.hidden);
    ck_assert_mem_eq(one.gate, three.gate, E * H * sizeof *one.gate);
    ck_assert_mem_eq(one.bias, three.bias, E * sizeof *one.bias);
    mr_generated_free(&one);
    mr_generated_free(&three);
}
END_TEST

START_TEST(verify_odd_shapes)
{
    static const int shapes[][2] = {{1, 1}, {1, 2}, {3, 511}, {2, 513}, {5000, 3}};
    static const char *const text[] = {GLM "{\"p\":3,\"none\":0}}",
                                       "{\"class\":\"normal\",\"tokens\":{\"p\":3,\"none\":0}}"};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        struct mr_router r = router(shapes[i / 2][0], shapes[i / 2][1]);
        size_t h = (size_t)r.hidden;
        struct mr_generated g = make(text[i % 2], &r, 1, 0, "p");
        for (size_t j = 0; j < 3 * h; j++) ck_assert((g.hidden[j] & 0x7f80) != 0x7f80);
        for (size_t j = 0; j < (size_t)r.experts * h; j++)
            ck_assert((g.gate[j] & 0x7f80) != 0x7f80);
        for (int e = 0; e < r.experts; e++)
            if (i % 2)
                ck_assert(g.bias[e] >= 0 && g.bias[e] <= 0); /* "normal", no band */
            else
                ck_assert(g.bias[e] >= 11.54f && g.bias[e] <= 11.96f);
        mr_generated_free(&g);
        g = make(text[i % 2], &r, 1, 0, "none");
        ck_assert_uint_eq(g.tokens, 0);
        mr_generated_free(&g);
        r.bias = false;
        g = make(text[i % 2], &r, 1, 0, "p");
        ck_assert_ptr_null(g.bias);
        mr_generated_free(&g);
    }
}
END_TEST

START_TEST(validate_normal_class)
{
    enum { E = 64, H = 4096, T = 64 };
    struct mr_router r = router(E, H);
    struct mr_generated g = make("{\"class\":\"normal\",\"hidden_std\":3,\"gate_std\":0.5,"
                                 "\"bias_low\":-2,\"bias_high\":1,\"tokens\":{\"p\":64}}",
                                 &r, 1, 0, "p");
    const uint16_t *array[] = {g.hidden, g.gate};
    const double sd[] = {3, 0.5}, n = (double)T * H;
    for (int a = 0; a < 2; a++) {
        double m1 = 0, m2 = 0;
        for (size_t i = 0; i < (size_t)T * H; i++) {
            double z = (double)mr_bf16_decode(array[a][i]) / sd[a];
            m1 += z / n, m2 += z * z / n;
        }
        ck_assert_double_eq_tol(m1, 0, 5 / sqrt(n));
        ck_assert_double_eq_tol(m2, 1, 5 * sqrt(2 / n) + 0x1p-17); /* and bf16's own variance */
    }
    double mean = 0;
    for (int e = 0; e < E; e++) {
        ck_assert(g.bias[e] >= -2 && g.bias[e] <= 1);
        mean += (double)g.bias[e] / E;
    }
    ck_assert_double_eq_tol(mean, -0.5, 5 * 3 / sqrt(12.0 * E));
    mr_generated_free(&g);
}
END_TEST

START_TEST(validate_glm_biases)
{
    struct mr_router r = router(288, 8);
    for (long seed = 1; seed <= 5; seed++)
        for (int layer = 0; layer < 46; layer += 15) {
            struct mr_generated g = make(GLM "{\"p\":0}}", &r, seed, layer, "p");
            bool seen[9] = {false}; /* 11.5 to 12 in steps of 1/16: bf16 between 8 and 16 */
            int values = 0;
            for (int e = 0; e < 288; e++) {
                ck_assert(g.bias[e] >= 11.54f && g.bias[e] <= 11.96f);
                int step = (int)floor(((double)g.bias[e] - 11.5) * 16 + 0.5);
                values += !seen[step];
                seen[step] = true;
            }
            ck_assert_int_eq(values, 7);
            mr_generated_free(&g);
        }
}
END_TEST

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, rising);
    return values[n / 2];
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double round_bf16(double x)
{
    return (double)mr_bf16_decode(mr_bf16_encode(x, MR_RNE, MR_OVERFLOW_IEEE));
}

/* The published figures that the class was fitted to, to the digits published, and the balance that
 * its mean logits are for. The flip rates are no business of a test: they are outcomes. */
START_TEST(validate_glm_published_inputs)
{
    enum { T = 1024, E = 288, H = 4096 };
    struct mr_router r = router(E, H);
    struct mr_generated g = make(GLM "{\"prompt\":1024}}", &r, _i, 0, "prompt");
    double *x = malloc(sizeof *x * T * H), *w = malloc(sizeof *w * E * H);
    double *logit = malloc(sizeof *logit * T * E), *error = malloc(sizeof *error * T * E);
    double *gap = malloc(sizeof *gap * T), key[E], energy = 0;
    ck_assert(x && w && logit && error && gap);
    mr_widen_f64(g.hidden, MR_BF16, (size_t)T * H, x);
    mr_widen_f64(g.gate, MR_BF16, (size_t)E * H, w);
    for (size_t i = 0; i < (size_t)T * H; i++) energy += x[i] * x[i] / ((double)T * H);
    ck_assert_double_eq_tol(energy, 1, 0.02);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, T, E, H, 1, x, H, w, H, 0, logit, E);

    int passes[E] = {0};
    for (int t = 0; t < T; t++) {
        for (int e = 0; e < E; e++) {
            double l = logit[t * E + e], b = (double)g.bias[e];
            key[e] = sigmoid(l) + b;
            passes[e] += key[e] > 11.75 + 0.29;
            float stored = (float)sigmoid(round_bf16(l)) + g.bias[e];
            error[t * E + e] = fabs((double)stored - key[e]);
        }
        qsort(key, E, sizeof *key, rising);
        gap[t] = key[E - 8] - key[E - 9];
    }
    double found = median(gap, T);
    ck_assert_msg(found > 0.0045 && found < 0.0055, "gap %g", found);
    found = median(error, (size_t)T * E);
    ck_assert_msg(found > 0.00015 && found < 0.00025, "key error of bf16 logits %g", found);
    for (int e = 0; e < E; e++) key[e] = fabs(round_bf16((double)g.bias[e]) - (double)g.bias[e]);
    found = median(key, E);
    ck_assert_msg(found > 0.0115 && found < 0.0125, "key error of bf16 biases %g", found);
    /* 8 of 288 of the tokens: 28.4 expected, standard deviation 5.3 and 1.5 for the row norms. */
    for (int e = 0; e < E; e++)
        ck_assert_msg(passes[e] > 5 && passes[e] < 62, "expert %d is chosen %d times", e,
                      passes[e]);

    free(x), free(w), free(logit), free(error), free(gap);
    mr_generated_free(&g);
}
END_TEST

#define TOKENS "\"tokens\":{\"p\":1}"
#define NORMAL "{\"class\":\"normal\"," TOKENS ","

static const struct {
    const char *text;
    enum mr_status status;
    const char *word;
} refused[] = {
    {"[]", MR_ERR_FORMAT, "object"},
    {"{" TOKENS "}", MR_ERR_MISSING, "\"class\""},
    {"{\"class\":1," TOKENS "}", MR_ERR_FORMAT, "\"class\""},
    {"{\"class\":\"glm\"," TOKENS "}", MR_ERR_VALUE, "unknown class \"glm\""},
    {NORMAL "\"colour\":1}", MR_ERR_FORMAT, "unknown key \"colour\""},
    {"{\"class\":\"glm-5.3-flash\"," TOKENS ",\"bias_low\":1}", MR_ERR_FORMAT, "\"bias_low\""},
    {"{\"class\":\"normal\"}", MR_ERR_MISSING, "\"tokens\""},
    {"{\"class\":\"normal\",\"tokens\":8}", MR_ERR_FORMAT, "\"tokens\""},
    {"{\"class\":\"normal\",\"tokens\":{}}", MR_ERR_FORMAT, "empty"},
    {"{\"class\":\"normal\",\"tokens\":{\"\":1}}", MR_ERR_VALUE, "no name"},
    {"{\"class\":\"normal\",\"tokens\":{\"p\":1.0}}", MR_ERR_FORMAT, "integer"},
    {"{\"class\":\"normal\",\"tokens\":{\"p\":\"1\"}}", MR_ERR_FORMAT, "integer"},
    {"{\"class\":\"normal\",\"tokens\":{\"p\":-1}}", MR_ERR_VALUE, "found -1"},
    {"{\"class\":\"normal\",\"tokens\":{\"p\":1,\"q\":16777217}}", MR_ERR_VALUE, "16777217"},
    {NORMAL "\"seed\":-1}", MR_ERR_VALUE, "\"seed\""},
    {NORMAL "\"seed\":1.5}", MR_ERR_VALUE, "\"seed\""},
    {NORMAL "\"layers\":0}", MR_ERR_FORMAT, "\"layers\""},
    {NORMAL "\"layers\":[]}", MR_ERR_FORMAT, "\"layers\""},
    {NORMAL "\"layers\":[0,-1]}", MR_ERR_VALUE, "layers[1]"},
    {NORMAL "\"layers\":[1024]}", MR_ERR_VALUE, "layers[0]"},
    {NORMAL "\"layers\":[\"0\"]}", MR_ERR_VALUE, "layers[0]"},
    {NORMAL "\"layers\":[3,3]}", MR_ERR_VALUE, "twice"},
    {NORMAL "\"hidden_std\":\"1\"}", MR_ERR_FORMAT, "\"hidden_std\""},
    {NORMAL "\"hidden_std\":0}", MR_ERR_VALUE, "\"hidden_std\""},
    {NORMAL "\"gate_std\":1e300}", MR_ERR_VALUE, "\"gate_std\""},
    {NORMAL "\"bias_low\":1}", MR_ERR_MISSING, "\"bias_high\""},
    {NORMAL "\"bias_high\":1}", MR_ERR_MISSING, "\"bias_low\""},
    {NORMAL "\"bias_low\":2,\"bias_high\":1}", MR_ERR_VALUE, "above"},
    {NORMAL "\"bias_low\":-1e9,\"bias_high\":1}", MR_ERR_VALUE, "\"bias_low\""},
};

static void refuse(const json_t *object, const struct mr_router *r, int layer, const char *phase,
                   enum mr_status status, const char *word)
{
    struct mr_error err = {""};
    struct mr_generated g;
    enum mr_status found = mr_generate_layer(object, r, 1, layer, phase, &g, &err);
    ck_assert_msg(found == status, "%s, not %s: %s", mr_status_name(found), mr_status_name(status),
                  err.text);
    ck_assert_msg(strstr(err.text, word) != NULL, "no %s in: %s", word, err.text);
    ck_assert(!g.hidden && !g.gate && !g.bias && g.tokens == 0);
}

START_TEST(reject_object)
{
    struct mr_router r = router(4, 4);
    struct mr_error err = {""};
    json_t *object = parse(refused[_i].text);
    enum mr_status found = mr_generate_check(object, &r, "some/case.json", &err);
    ck_assert_msg(found == refused[_i].status, "%s: %s", mr_status_name(found), err.text);
    ck_assert_msg(strstr(err.text, refused[_i].word) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, "some/case.json") != NULL, "%s", err.text);
    refuse(object, &r, 0, "p", refused[_i].status, refused[_i].word);
    json_decref(object);
}
END_TEST

START_TEST(reject_router_layer_phase)
{
    json_t *object = parse(NORMAL "\"layers\":[2]}");
    json_t *band = parse(NORMAL "\"bias_low\":0,\"bias_high\":1}");
    struct mr_router r = router(4, 4), none = router(0, 4), flat = router(4, 0);
    refuse(object, &r, 2, "q", MR_ERR_MISSING, "phase \"q\"");
    refuse(object, &r, 1, "p", MR_ERR_MISSING, "layer 1");
    refuse(band, &r, -1, "p", MR_ERR_MISSING, "layer -1");
    refuse(object, &none, 2, "p", MR_ERR_VALUE, "experts");
    refuse(object, &flat, 2, "p", MR_ERR_VALUE, "hidden");
    r.bias = false;
    refuse(band, &r, 2, "p", MR_ERR_VALUE, "no bias");
    refuse(NULL, &r, 2, "p", MR_ERR_FORMAT, "object");
    json_decref(object);
    json_decref(band);
}
END_TEST

Suite *suite_generate(void);
Suite *suite_generate(void)
{
    Suite *suite = suite_create("generate");
    TCase *layers = tcase_create("layers");
    tcase_set_timeout(layers, 60);
    tcase_add_test(layers, corroborate_bytes_with_python);
    tcase_add_loop_test(layers, verify_arguments_decide, 0, 2);
    tcase_add_test(layers, verify_threads_and_length_do_not_matter);
    tcase_add_test(layers, verify_odd_shapes);
    tcase_add_test(layers, validate_normal_class);
    tcase_add_test(layers, validate_glm_biases);
    tcase_add_loop_test(layers, validate_glm_published_inputs, 1, getenv("MOEREF_LONG") ? 6 : 2);
    suite_add_tcase(suite, layers);
    TCase *refusals = tcase_create("refusals");
    tcase_add_loop_test(refusals, reject_object, 0, sizeof refused / sizeof *refused);
    tcase_add_test(refusals, reject_router_layer_phase);
    suite_add_tcase(suite, refusals);
    return suite;
}
