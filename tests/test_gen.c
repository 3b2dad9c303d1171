/* moeref gen: every class is what it says, by counting and by sums in binary64; the same arguments
 * give the same bytes; what cannot be made is refused. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/case.h"
#include "../ref/io/generate_edge.h"
#include "support/cli.h"

static struct mr_error err;

/* One layer, and rows sorted by falling key. */
struct made {
    const struct mr_edge *class;
    const struct mr_router *r;
    size_t tokens, stride;
    float *logits, bias[1024];
    double sorted[1024];
};

static struct made make(const char *name, int layer, int level)
{
    struct made m = {.class = mr_edge_find(name)};
    ck_assert_msg(m.class != NULL, "%s", name);
    m.r = &m.class->router;
    m.tokens = mr_edge_least(m.class, level);
    m.stride = m.class->row_stride ? m.class->row_stride : (size_t)m.r->experts;
    m.logits = malloc((m.tokens + 1) * m.stride * sizeof *m.logits);
    ck_assert(!mr_edge_layer(m.class, m.r, 5, layer, m.tokens, m.stride, m.logits,
                             m.r->bias ? m.bias : NULL, &err));
    return m;
}

static const float *row(const struct made *m, size_t t)
{
    return m->logits + t * m->stride;
}

static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* keys of experts first .. first + n - 1, sorted. */
static void sort_keys(struct made *m, size_t t, int first, int n)
{
    for (int i = 0; i < n; i++) m->sorted[i] = (double)row(m, t)[first + i];
    qsort(m->sorted, (size_t)n, sizeof *m->sorted, falling);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

#define EACH_LAYER(m, name)                                                                       \
    for (int layer = 0; layer < mr_edge_find(name)->layers; layer++)                              \
        for (struct made m = make(name, layer, 2), *once = &m; once;                              \
             free(m.logits), once = NULL)

START_TEST(validate_ties_at_the_cut)
{
    EACH_LAYER(m, "tie-at-cut") {
        int k = m.r->top_k, distances[9] = {0};
        for (size_t t = 0; t < m.tokens; t++) {
            sort_keys(&m, t, 0, m.r->experts);
            ck_assert_double_eq(m.sorted[k - 1], m.sorted[k]);
            int tied[2], count = 0;
            for (int e = 0; e < m.r->experts; e++)
                if ((double)row(&m, t)[e] == m.sorted[k]) tied[count++ & 1] = e;
            for (int d = 0; count == 2 && d < 9; d++) distances[d] += (tied[0] ^ tied[1]) == 1 << d;
        }
        for (int e = 1; e < m.r->experts; e++) ck_assert(m.bias[e] == m.bias[0]);
        for (int d = 0; d < 9; d++) ck_assert_int_gt(distances[d], 0);
    }
    EACH_LAYER(m, "near-tie") {
        int k = m.r->top_k;
        for (size_t t = 0; t < m.tokens; t++) {
            sort_keys(&m, t, 0, m.r->experts);
            float above = (float)m.sorted[k - 1], below = (float)m.sorted[k];
            ck_assert(nextafterf(below, 1) == above);
        }
    }
}
END_TEST

/* Sums of the two largest keys of each group, sorted; which[g]: of group g. */
static void group_sums(struct made *m, size_t t, double *sums, double *which)
{
    int n = m->r->experts / m->r->n_group;
    for (int g = 0; g < m->r->n_group; g++) {
        sort_keys(m, t, g * n, n);
        which[g] = sums[g] = sigmoid(m->sorted[0]) + sigmoid(m->sorted[1]);
    }
    qsort(sums, (size_t)m->r->n_group, sizeof *sums, falling);
}

START_TEST(validate_ties_of_groups)
{
    double sums[64], which[64];
    EACH_LAYER(m, "tie-between-groups") {
        int chosen = m.r->topk_group;
        for (size_t t = 0; t < m.tokens; t++) {
            group_sums(&m, t, sums, which);
            ck_assert_double_eq(sums[chosen - 1], sums[chosen]);
            ck_assert_double_gt(sums[0] - sums[m.r->n_group - 1], 0.1);
        }
    }
    EACH_LAYER(m, "tie-in-groups") {
        int n = m.r->experts / m.r->n_group, k = m.r->top_k, chosen = m.r->topk_group;
        for (size_t t = 0; t < m.tokens; t++) {
            double keys[1024];
            int count = 0;
            group_sums(&m, t, sums, which);
            ck_assert_double_gt(sums[chosen - 1], sums[chosen] + 0.1);
            for (int e = 0; e < m.r->experts; e++)
                if (which[e / n] >= sums[chosen - 1]) keys[count++] = (double)row(&m, t)[e];
            ck_assert_int_eq(count, n * chosen);
            qsort(keys, (size_t)count, sizeof *keys, falling);
            ck_assert_double_eq(keys[k - 1], keys[k]);
        }
    }
    EACH_LAYER(m, "group-top2-equal") {
        int n = m.r->experts / m.r->n_group, chosen = m.r->topk_group;
        for (size_t t = 0; t < m.tokens; t++) {
            int found = 0;
            group_sums(&m, t, sums, which);
            for (int g = 0; g < m.r->n_group; g++) {
                sort_keys(&m, t, g * n, n);
                if (m.sorted[0] != m.sorted[1]) continue;
                double misread = sigmoid(m.sorted[0]) + sigmoid(m.sorted[2]);
                ck_assert_double_gt(which[g], sums[1]);
                ck_assert_double_lt(misread, sums[chosen]);
                found++;
            }
            ck_assert_int_eq(found, 1);
        }
    }
}
END_TEST

START_TEST(validate_values)
{
    EACH_LAYER(m, "all-equal")
        for (size_t i = 1; i < m.tokens * m.stride; i++)
            ck_assert(i % m.stride == 0 || !memcmp(&m.logits[i], &m.logits[i - 1], 4));
    EACH_LAYER(m, "all-negative")
        for (size_t i = 0; i < m.tokens * m.stride; i++) ck_assert(m.logits[i] < 0);
    EACH_LAYER(m, "saturated")
        for (size_t i = 0; i < m.tokens * m.stride; i++) ck_assert(m.logits[i] >= 16.5f);
    EACH_LAYER(m, "sigmoid-tail")
        for (size_t i = 0; i < m.tokens * m.stride; i++) ck_assert(m.logits[i] < -13.9f);
    EACH_LAYER(m, "subnormal") {
        int small = 0;
        for (size_t i = 0; i < m.tokens * m.stride; i++)
            small += fpclassify(m.logits[i]) == FP_SUBNORMAL;
        ck_assert_int_gt(small, (int)(m.tokens * m.stride / 4));
    }
    EACH_LAYER(m, "minus-zero") {
        int zeros[2] = {0};
        for (size_t i = 0; i < m.tokens * m.stride; i++)
            if (m.logits[i] == 0) zeros[signbit(m.logits[i]) != 0]++;
        ck_assert_int_gt(zeros[0], 1000);
        ck_assert_int_gt(zeros[1], 1000);
    }
    EACH_LAYER(m, "softplus-tail") {
        double least = 0, most = 0;
        for (size_t i = 0; i < m.tokens * m.stride; i++) {
            least = fmin(least, (double)m.logits[i]);
            most = fmax(most, (double)m.logits[i]);
        }
        ck_assert(least < -199 && most > 199);
    }
}
END_TEST

START_TEST(validate_biases)
{
    static const double offset[] = {0, 2, 8, 12, 35};
    EACH_LAYER(m, "bias-offsets") {
        double least = INFINITY, most = -INFINITY;
        for (int e = 0; e < m.r->experts; e++) {
            least = fmin(least, (double)m.bias[e]);
            most = fmax(most, (double)m.bias[e]);
        }
        ck_assert(least >= offset[layer] - 0.125 && most <= offset[layer] + 0.125);
        ck_assert_double_gt(most - least, 0.2);
    }
    EACH_LAYER(m, "bias-negative")
        for (size_t i = 0; i < m.tokens * m.stride; i++)
            ck_assert_double_lt(sigmoid((double)m.logits[i]) + (double)m.bias[i % m.stride], 0);
}
END_TEST

START_TEST(validate_numbers_that_are_not_finite)
{
    static const struct {
        const char *name;
        bool columns, nan;
    } bad[] = {{"nan-columns", true, true}, {"inf-columns", true, false},
               {"nan-rows", false, true},   {"inf-rows", false, false}};
    for (size_t i = 0; i < 4; i++)
        EACH_LAYER(m, bad[i].name) {
            int k = m.r->top_k, whole = 0;
            for (size_t t = 0; t < m.tokens; t++) {
                int count = 0;
                for (int e = 0; e < m.r->experts; e++) {
                    float x = row(&m, t)[e];
                    count += !isfinite(x);
                    ck_assert(isfinite(x) || !isnan(x) == !bad[i].nan);
                    if (bad[i].columns) ck_assert(!isfinite(x) == !isfinite(row(&m, 0)[e]));
                }
                whole += count == m.r->experts;
                if (bad[i].columns) ck_assert_int_eq(count, layer ? m.r->experts - k + 1 : 1);
                else ck_assert_int_eq(count > 0, t % 2);
            }
            if (!bad[i].columns) ck_assert_int_eq(whole, (int)m.tokens / 4);
        }
}
END_TEST

START_TEST(validate_shapes)
{
    ck_assert_int_eq(mr_edge_find("k-one")->router.top_k, 1);
    ck_assert_int_eq(mr_edge_find("k-all")->router.top_k, mr_edge_find("k-all")->router.experts);
    ck_assert_int_ne(mr_edge_find("experts-odd")->router.experts % 32, 0);
    ck_assert_int_eq(mr_edge_find("experts-1024")->router.experts, 1024);
    ck_assert_uint_eq(mr_edge_least(mr_edge_find("one-token"), 2), 1);
    ck_assert_uint_eq(mr_edge_least(mr_edge_find("no-tokens"), 2), 0);
    struct made m = make("wide-stride", 0, 2);
    ck_assert_uint_gt(m.stride, (size_t)m.r->experts);
    for (size_t t = 0; t < m.tokens; t++)
        for (size_t i = 0; i < m.stride; i++)
            ck_assert((i < (size_t)m.r->experts) ==
                      (isfinite(row(&m, t)[i]) && row(&m, t)[i] < 1e20f));
    free(m.logits);
    for (size_t i = 0; i < mr_edge_count(); i++) {
        const struct mr_edge *c = mr_edge_at(i);
        ck_assert(!mr_router_check(&c->router, c->name, &err));
        ck_assert_uint_le(mr_edge_least(c, 1), mr_edge_least(c, 2));
        if (i) ck_assert_int_lt(strcmp(mr_edge_at(i - 1)->name, c->name), 0);
    }
}
END_TEST

static const char *file_of(const char *folder, const char *class, const char *ending)
{
    char name[128];
    snprintf(name, sizeof name, "%s/%s.%s", folder, class, ending);
    return cli_at(name);
}

/* Every class, by the program: the same bytes, other bytes for another seed, and a case that
 * loads. */
START_TEST(verify_same_arguments_same_bytes)
{
    for (size_t i = 0; i < mr_edge_count(); i++) {
        const struct mr_edge *class = mr_edge_at(i);
        static const char *const folders[] = {"a", "b", "c"}, *const endings[] = {"json",
                                                                                  "safetensors"};
        for (int f = 0; f < 3; f++) {
            cli("gen", class->name, "--seed", f == 2 ? "9" : "8", "-o", cli_at(folders[f]));
            cli_fine();
        }
        for (int n = 0; n < 2; n++) {
            const char *first = file_of("a", class->name, endings[n]);
            ck_assert(cli_same(first, file_of("b", class->name, endings[n])));
            ck_assert(!cli_same(first, file_of("c", class->name, endings[n])));
        }
        struct mr_case *c;
        struct mr_case_layer l;
        ck_assert_msg(!mr_case_load(file_of("a", class->name, "json"), NULL, &c, &err), "%s",
                      err.text);
        ck_assert_uint_eq(mr_case_layer_count(c), (size_t)class->layers);
        ck_assert(!mr_case_get(c, class->layers - 1, "all", &l, &err));
        ck_assert_uint_eq(l.logits.shape[0], mr_edge_least(class, 1));
        ck_assert_uint_eq(l.logits.shape[1], (uint64_t)class->router.experts);
        /* The padding of a wide row is gone, and nothing else. */
        struct made m = make(class->name, 0, 1);
        size_t row_bytes = (size_t)m.r->experts * sizeof(float);
        ck_assert(!mr_edge_layer(class, m.r, 8, class->layers - 1, m.tokens, m.stride, m.logits,
                                 m.r->bias ? m.bias : NULL, &err));
        for (size_t t = 0; t < m.tokens; t++)
            ck_assert_mem_eq((const char *)l.logits.data + t * row_bytes, row(&m, t), row_bytes);
        if (m.r->bias) ck_assert_mem_eq(l.bias.data, m.bias, row_bytes);
        free(m.logits);
        mr_case_free(c);
        for (int f = 0; f < 3; f++)
            for (int n = 0; n < 2; n++) remove(file_of(folders[f], class->name, endings[n]));
    }
    for (const char *f = "abc"; *f; f++) remove(cli_at((char[]){*f, '\0'}));
}
END_TEST

START_TEST(reject_what_cannot_be_made)
{
    cli_remember();
    cli("gen", "tie-at-cup", "-o", cli_at("x"));
    cli_refused(2, "tie-at-cup", "tie-at-cut");
    cli("gen", "tie-at-cut", "--tokens", "11", "-o", cli_at("."));
    cli_refused(3, "12", "11");
    cli("gen", "tie-at-cut", "--tokens", "0", "-o", cli_at("."));
    cli_refused(2, "12", NULL);
    cli("gen", "one-token", "--tokens", "2", "-o", cli_at("."));
    cli_refused(3, "one-token", "2");
    cli("gen", "k-one", "--level", "3", "-o", cli_at("."));
    cli_refused(2, "--level", "3");
    cli("gen", "k-one");
    cli_refused(2, "-o", NULL);
    cli("gen", "-o", cli_at("."));
    cli_refused(2, "CLASS", NULL);
    cli("gen", "k-one", "-o", cli_at("no/such"));
    cli_refused(3, "no/such", NULL);
    cli("gen", "k-one", "-o", cli_at("case.json"));
    cli_refused(3, "case.json", NULL);
    float logits[256 * 2];
    const struct mr_edge *groups = mr_edge_find("tie-in-groups");
    struct mr_router r = mr_edge_find("k-one")->router;
    ck_assert_int_eq(mr_edge_layer(groups, &r, 1, 0, 1, 256, logits, NULL, &err), MR_ERR_VALUE);
    ck_assert_int_eq(mr_edge_layer(groups, &groups->router, 1, 0, 1, 255, logits, NULL, &err),
                     MR_ERR_VALUE);
}
END_TEST

#define LOGITS "'moeref_case':1,'name':'n','input':'logits','capture':['w.st'],"
#define ROUTER60 "'router':{'experts':60,'top_k':4,'score':'softmax','bias':false,'n_group':1," \
                 "'topk_group':1,'norm_topk_prob':true,'routed_scaling_factor':1"
#define GROUPS60 "'router':{'experts':60,'top_k':4,'score':'sigmoid','bias':false,'n_group':3," \
                 "'topk_group':1,'norm_topk_prob':true,'routed_scaling_factor':1"

/* What `gen` writes beside older keys: row_stride, group_score, selection. */
START_TEST(reject_cases_that_contradict_themselves)
{
    static const struct {
        const char *text, *word, *second;
    } bad[] = {
        {"{" LOGITS ROUTER60 "},'row_stride':59}", "row_stride", "60"},
        {"{" LOGITS ROUTER60 "},'row_stride':0}", "row_stride", "0"},
        {"{" LOGITS ROUTER60 "},'row_stride':'64'}", "row_stride", "64"},
        {"{" LOGITS ROUTER60 "},'row_stride':65}", "gate.logits", "65"},
        {"{" LOGITS ROUTER60 "}}", "gate.logits", "60"},
        {"{" LOGITS ROUTER60 "},'row_stride':64,'inline':{'0':{'logits':[]}}}", "row_stride", NULL},
        {"{'moeref_case':1,'name':'n','input':'hidden','capture':['w.st'],'checkpoint':['w.st'],"
         ROUTER60 ",'hidden':8},'row_stride':64}", "row_stride", NULL},
        {"{" LOGITS GROUPS60 "},'row_stride':64}", "group_score", NULL},
        {"{" LOGITS GROUPS60 ",'group_score':'top1'},'row_stride':64}", "group_score", "top1"},
        {"{" LOGITS ROUTER60 ",'selection':'key'},'row_stride':64}", "selection", "key"},
    };
    float logits[2 * 64] = {0};
    const struct cli_tensor t = {"all.model.layers.0.mlp.gate.logits", MR_F32, 2, 64, logits};
    cli_put_tensors("w.st", &t, 1);
    cli_put_json("n.json", "{" LOGITS ROUTER60 "},'row_stride':64}");
    cli("route", cli_at("n.json"), "-q");
    cli_fine();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cli_put_json("n.json", bad[i].text);
        cli_remember();
        cli("route", cli_at("n.json"));
        cli_refused(3, bad[i].word, bad[i].second);
    }
    remove(cli_at("n.json"));
    remove(cli_at("w.st"));
}
END_TEST

START_TEST(validate_list_names_every_class)
{
    cli("gen", "--list");
    cli_fine();
    for (size_t i = 0; i < mr_edge_count(); i++)
        ck_assert_ptr_nonnull(strstr(cli_last.out, mr_edge_at(i)->name));
}
END_TEST

Suite *suite_gen(void);
Suite *suite_gen(void)
{
    Suite *suite = suite_create("gen");
    TCase *classes = tcase_create("classes"), *program = tcase_create("program");
    tcase_add_test(classes, validate_ties_at_the_cut);
    tcase_add_test(classes, validate_ties_of_groups);
    tcase_add_test(classes, validate_values);
    tcase_add_test(classes, validate_biases);
    tcase_add_test(classes, validate_numbers_that_are_not_finite);
    tcase_add_test(classes, validate_shapes);
    suite_add_tcase(suite, classes);
    tcase_set_timeout(program, 120);
    tcase_add_checked_fixture(program, cli_start, cli_stop);
    tcase_add_test(program, verify_same_arguments_same_bytes);
    tcase_add_test(program, reject_what_cannot_be_made);
    tcase_add_test(program, reject_cases_that_contradict_themselves);
    tcase_add_test(program, validate_list_names_every_class);
    suite_add_tcase(suite, program);
    return suite;
}
