/* The judge of one token, on keys and radii that are known. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "support/fake_token.h"
#include "support/routed.h"

Suite *suite_verdict(void);

static int sweep(void)
{
    return getenv("MOEREF_LONG") ? 100000 : 4000;
}

/* 8 experts, top 3: keys 0.8, 0.7, ... 0.1, radii 0.01, weights 0.5, 0.3, 0.2, then 0.1; weights
 * may be off by 0.001. Certified: 0, 1, 2. */
static void small(struct fake_token *t)
{
    static const double weight[8] = {0.5, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1};
    fake_new(t, 8, 3);
    for (int e = 0; e < 8; e++) {
        t->key[e] = 0.8 - 0.1 * e;
        t->radius[e] = 0.01;
        t->weight[e] = weight[e];
        t->weight_radius[e] = 0.001;
    }
    fake_certify(t);
}

static void expect(struct mr_judgement j, enum mr_verdict verdict, enum mr_cause cause)
{
    ck_assert_msg(j.verdict == verdict && j.cause == cause, "%s by %s, expected %s by %s",
                  mr_verdict_name(j.verdict), mr_cause_name(j.cause), mr_verdict_name(verdict),
                  mr_cause_name(cause));
}

#define IDS(...) ((const int64_t[]){__VA_ARGS__})
#define WEIGHTS(...) ((const double[]){__VA_ARGS__})

START_TEST(verify_exact)
{
    struct fake_token t;
    small(&t);
    expect(fake_judge(&t, IDS(0, 1, 2), WEIGHTS(0.5, 0.3, 0.2), true), MR_EXACT, MR_CAUSE_NONE);
    expect(fake_judge(&t, IDS(2, 0, 1), WEIGHTS(0.2, 0.5, 0.3), false), MR_EXACT, MR_CAUSE_NONE);
    ck_assert_int_eq(t.key_calls, 0); /* nothing differs, nothing is asked */
    expect(fake_judge(&t, IDS(2, 0, 1), NULL, false), MR_EXACT, MR_CAUSE_NONE);
    ck_assert_int_eq(t.weight_calls, 0);
    /* Within the sharp radius of a weight, beyond the one that excuses without work. */
    expect(fake_judge(&t, IDS(0, 1, 2), WEIGHTS(0.5009, 0.3, 0.2), true), MR_EXACT, MR_CAUSE_NONE);
}
END_TEST

START_TEST(verify_wrong_set)
{
    struct fake_token t;
    small(&t);
    struct mr_judgement j = fake_judge(&t, IDS(0, 1, 3), NULL, false);
    expect(j, MR_WRONG, MR_CAUSE_SET);
    ck_assert_int_eq(j.omitted, 2);
    ck_assert_int_eq(j.included, 3);
    ck_assert_double_eq_tol(j.difference, 0.1, 1e-15);
    ck_assert_double_eq_tol(j.radius, 0.02, 1e-15); /* sharp, though the cheap one decided */
    ck_assert_double_eq(j.omitted_key, t.key[2]);
    ck_assert_double_eq(j.included_key, t.key[3]);
    /* Of several pairs the worst is named. */
    j = fake_judge(&t, IDS(1, 7, 3), NULL, false);
    expect(j, MR_WRONG, MR_CAUSE_SET);
    ck_assert_int_eq(j.omitted, 0);
    ck_assert_int_eq(j.included, 7);
    /* Beyond the sharp radius, within the cheap one. */
    t.radius[2] = t.radius[3] = 0.04;
    expect(fake_judge(&t, IDS(0, 1, 3), NULL, false), MR_WRONG, MR_CAUSE_SET);
}
END_TEST

START_TEST(verify_rounding)
{
    struct fake_token t;
    small(&t);
    t.radius[2] = 0.05, t.radius[3] = 0.051;
    struct mr_judgement j = fake_judge(&t, IDS(0, 1, 3), WEIGHTS(0.5, 0.3, 0.1), false);
    expect(j, MR_ROUNDING, MR_CAUSE_SET);
    ck_assert_int_eq(j.set, MR_ROUNDING);
    ck_assert_int_eq(j.weight, MR_EXACT);
    /* A legal flip does not hide a wrong weight: 0.2 is that of the expert left out. */
    j = fake_judge(&t, IDS(0, 1, 3), WEIGHTS(0.5, 0.3, 0.2), false);
    expect(j, MR_WRONG, MR_CAUSE_WEIGHT);
    ck_assert_int_eq(j.set, MR_ROUNDING);
    ck_assert_int_eq(j.slot, 2);
    ck_assert_double_eq(j.omitted_key, 0.1);
    ck_assert_double_eq(j.included_key, 0.2);
}
END_TEST

START_TEST(verify_order)
{
    struct fake_token t;
    small(&t);
    struct mr_judgement j = fake_judge(&t, IDS(1, 0, 2), WEIGHTS(0.3, 0.5, 0.2), true);
    expect(j, MR_MALFORMED, MR_CAUSE_ORDER);
    ck_assert_int_eq(j.omitted, 0);
    ck_assert_int_eq(j.included, 1);
    ck_assert_int_eq(j.slot, 0);
    ck_assert_int_eq(j.order, MR_MALFORMED);
    ck_assert_int_eq(j.set, MR_EXACT);
    t.radius[0] = t.radius[1] = 0.051;
    expect(fake_judge(&t, IDS(1, 0, 2), NULL, true), MR_ROUNDING, MR_CAUSE_ORDER);
    /* Equal keys stand in any order. */
    t.key[1] = t.key[0];
    t.radius[0] = t.radius[1] = 0;
    fake_certify(&t);
    expect(fake_judge(&t, IDS(1, 0, 2), NULL, true), MR_EXACT, MR_CAUSE_NONE);
    /* Another set in its own right order is no breach of order. */
    t.radius[2] = t.radius[3] = 0.06;
    j = fake_judge(&t, IDS(0, 1, 3), NULL, true);
    expect(j, MR_ROUNDING, MR_CAUSE_SET);
    ck_assert_int_eq(j.order, MR_EXACT);
}
END_TEST

START_TEST(verify_tie)
{
    struct fake_token t;
    small(&t);
    t.key[2] = t.key[3] = t.key[5] = 0.55;
    t.key[4] = 0.4;
    fake_certify(&t);
    ck_assert_int_eq(t.routed.certificate, MR_CERT_TIE);
    for (int e = 2; e < 6; e++) {
        if (e == 4) continue;
        struct mr_judgement j = fake_judge(&t, IDS(0, e, 1), NULL, false);
        expect(j, MR_TIE, MR_CAUSE_TIE);
        ck_assert_int_eq(t.key_calls, 0);
    }
    expect(fake_judge(&t, IDS(0, 1, 4), NULL, false), MR_WRONG, MR_CAUSE_SET);
    expect(fake_judge(&t, IDS(0, 2, 3), NULL, false), MR_WRONG, MR_CAUSE_SET);
    struct mr_judgement j = fake_judge(&t, IDS(0, 3, 1), WEIGHTS(0.5, 0.2, 0.3), false);
    expect(j, MR_WRONG, MR_CAUSE_WEIGHT); /* expert 3 weighs 0.1 */
    ck_assert_int_eq(j.set, MR_TIE);
}
END_TEST

START_TEST(verify_undecided)
{
    struct fake_token t;
    small(&t);
    t.routed.certificate = MR_CERT_UNDECIDED;
    expect(fake_judge(&t, IDS(0, 1, 2), NULL, false), MR_UNDECIDED, MR_CAUSE_REFERENCE);
    expect(fake_judge(&t, IDS(0, 1, 3), NULL, false), MR_WRONG, MR_CAUSE_SET);
    t.radius[2] = t.radius[3] = 0.06;
    expect(fake_judge(&t, IDS(0, 1, 3), NULL, false), MR_UNDECIDED, MR_CAUSE_REFERENCE);
    /* An input that is not finite has no right answer, but ids must be experts all the same. */
    for (int i = 0; i < 3; i++) t.ids[i] = -1;
    t.routed.certificate = MR_CERT_NONFINITE;
    expect(fake_judge(&t, IDS(5, 6, 7), WEIGHTS(NAN, 0, 0), true), MR_UNDECIDED, MR_CAUSE_INPUT);
    expect(fake_judge(&t, IDS(0, 0, 0), NULL, false), MR_MALFORMED, MR_CAUSE_DUPLICATE);
}
END_TEST

START_TEST(verify_nonfinite)
{
    struct fake_token t;
    small(&t);
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int b = 0; b < 3; b++) {
        struct mr_judgement j = fake_judge(&t, IDS(0, 1, 2), WEIGHTS(0.5, bad[b], 0.2), true);
        expect(j, MR_NONFINITE, MR_CAUSE_WEIGHT);
        ck_assert_int_eq(j.slot, 1);
        ck_assert_double_eq(j.omitted_key, 0.3);
    }
    /* Worse than a wrong set, and than a wrong weight. */
    expect(fake_judge(&t, IDS(0, 1, 7), WEIGHTS(9, 0.3, NAN), false), MR_NONFINITE,
           MR_CAUSE_WEIGHT);
}
END_TEST

START_TEST(reject_ids)
{
    struct fake_token t;
    small(&t);
    static const int64_t bad[] = {-1, -2, 8, 255, INT32_MAX, INT64_MAX, INT64_MIN, 1ll << 32};
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        struct mr_judgement j = fake_judge(&t, IDS(0, bad[b], 2), WEIGHTS(0.5, 0.3, 0.2), true);
        expect(j, MR_MALFORMED, MR_CAUSE_RANGE);
        ck_assert_int_eq(j.slot, 1);
        ck_assert(j.id == bad[b]);
    }
    struct mr_judgement j = fake_judge(&t, IDS(0, 2, 2), NULL, false);
    expect(j, MR_MALFORMED, MR_CAUSE_DUPLICATE);
    ck_assert_int_eq(j.slot, 2);
    struct mr_judge *judge;
    struct mr_claim claim = {IDS(0, 1, 2, 3), 2, NULL, false};
    struct mr_judge_source source = fake_source(&t);
    ck_assert_int_eq(mr_judge_new(&t.router, &judge), MR_OK);
    ck_assert_int_eq(mr_judge_token(judge, &t.routed, &claim, &source, &j), MR_OK);
    expect(j, MR_MALFORMED, MR_CAUSE_COUNT);
    claim.count = 4;
    ck_assert_int_eq(mr_judge_token(judge, &t.routed, &claim, &source, &j), MR_OK);
    expect(j, MR_MALFORMED, MR_CAUSE_COUNT);
    mr_judge_free(judge);
}
END_TEST

START_TEST(verify_pairing)
{
    struct fake_token t;
    small(&t);
    struct mr_judgement j = fake_judge(&t, IDS(0, 1, 2), WEIGHTS(0.3, 0.5, 0.2), false);
    expect(j, MR_MALFORMED, MR_CAUSE_PAIRING);
    ck_assert(j.slot == 0 ? j.included == 1 : j.slot == 1 && j.included == 0);
    ck_assert_int_eq(j.pairing, MR_MALFORMED);
    expect(fake_judge(&t, IDS(0, 1, 2), WEIGHTS(0.3, 0.5, 0.21), false), MR_WRONG, MR_CAUSE_WEIGHT);
    /* Experts that weigh the same cannot be told apart, and need not be. */
    t.weight[1] = t.weight[0];
    expect(fake_judge(&t, IDS(1, 0, 2), WEIGHTS(0.5, 0.5, 0.2), false), MR_EXACT, MR_CAUSE_NONE);
}
END_TEST

/* Whether some arrangement of the weights fits, by trying all. */
static bool arranged(const double *claimed, const double *w, const double *r, int k, int at,
                     unsigned used)
{
    if (at == k) return true;
    for (int i = 0; i < k; i++)
        if (!(used >> i & 1) && fabs(claimed[i] - w[at]) <= r[at] &&
            arranged(claimed, w, r, k, at + 1, used | 1u << i))
            return true;
    return false;
}

START_TEST(corroborate_pairing)
{
    uint64_t state = 5;
    int found = 0;
    for (int n = 0; n < sweep(); n++) {
        struct fake_token t;
        int64_t ids[5];
        double w[5], r[5], claimed[5];
        fake_new(&t, 8, 5);
        for (int e = 0; e < 8; e++) {
            t.key[e] = 8 - e;
            t.weight[e] = (double)(routed_random(&state) % 16);
            t.weight_radius[e] = (double)(routed_random(&state) % 4) + 0.25;
        }
        fake_certify(&t);
        bool fits = true;
        for (int i = 0; i < 5; i++) {
            ids[i] = i;
            w[i] = t.weight[i];
            r[i] = t.weight_radius[i];
            claimed[i] = (double)(routed_random(&state) % 16);
        }
        for (int i = 0; i < 5; i++) fits &= fabs(claimed[i] - w[i]) <= r[i];
        bool any = arranged(claimed, w, r, 5, 0, 0);
        struct mr_judgement j = fake_judge(&t, ids, claimed, false);
        enum mr_verdict want = fits ? MR_EXACT : any ? MR_MALFORMED : MR_WRONG;
        ck_assert_msg(j.verdict == want, "%d: %s, expected %s", n, mr_verdict_name(j.verdict),
                      mr_verdict_name(want));
        found += want == MR_MALFORMED;
    }
    ck_assert_int_gt(found, 20);
}
END_TEST

/* Keys within their radii, ranked by a kernel with any tie rule: never WRONG. One swap of which the
 * keys differ by more than the radii: always. */
START_TEST(verify_perturbed)
{
    uint64_t state = 7;
    int flips = 0, swaps = 0;
    for (int n = 0; n < sweep(); n++) {
        struct fake_token t, moved;
        int64_t ids[FAKE_TOP_K];
        int experts = 2 + (int)(routed_random(&state) % 30), k;
        k = 1 + (int)(routed_random(&state) % 8) % (experts - 1);
        fake_new(&t, experts, k);
        for (int e = 0; e < experts; e++) {
            t.key[e] = routed_uniform(&state);
            t.radius[e] = 0.1 * fabs(routed_uniform(&state));
        }
        fake_certify(&t);
        moved = t;
        for (int e = 0; e < experts; e++) {
            double side = n % 2 ? routed_uniform(&state) : routed_random(&state) % 2 ? 1 : -1;
            moved.key[e] += t.radius[e] * side;
        }
        fake_certify(&moved);
        fake_right(&moved, ids, NULL);
        struct mr_judgement j = fake_judge(&t, ids, NULL, true);
        ck_assert_msg(j.verdict == MR_EXACT || j.verdict == MR_ROUNDING, "%d: %s by %s", n,
                      mr_verdict_name(j.verdict), mr_cause_name(j.cause));
        flips += j.set == MR_ROUNDING;
        /* A swap, judged by its one pair. */
        int out = t.ids[routed_random(&state) % (unsigned)k], in;
        do in = (int)(routed_random(&state) % (unsigned)experts);
        while (t.key[in] > t.key[t.ids[k - 1]] || in == t.ids[k - 1]);
        for (int i = 0; i < k; i++) ids[i] = t.ids[i] == out ? in : t.ids[i];
        bool beyond = t.key[out] - t.key[in] > t.radius[out] + t.radius[in];
        j = fake_judge(&t, ids, NULL, false);
        ck_assert_int_eq(j.verdict, beyond ? MR_WRONG : MR_ROUNDING);
        ck_assert(j.omitted == out && j.included == in);
        swaps += beyond;
    }
    ck_assert_int_gt(flips, 100);
    ck_assert_int_gt(swaps, 100);
}
END_TEST

/* Sets that differ in several experts: by every pair. */
START_TEST(corroborate_pairs)
{
    uint64_t state = 9;
    int counts[MR_VERDICT_COUNT] = {0};
    for (int n = 0; n < sweep(); n++) {
        struct fake_token t;
        int64_t ids[4];
        bool chosen[10] = {false}, certified[10] = {false};
        fake_new(&t, 10, 4);
        for (int e = 0; e < 10; e++) {
            t.key[e] = routed_uniform(&state);
            t.radius[e] = 0.5 * fabs(routed_uniform(&state));
        }
        fake_certify(&t);
        for (int i = 0; i < 4; i++) {
            certified[t.ids[i]] = true;
            do ids[i] = (int64_t)(routed_random(&state) % 10);
            while (chosen[ids[i]]);
            chosen[ids[i]] = true;
        }
        bool same = true, wrong = false;
        for (int a = 0; a < 10; a++)
            for (int b = 0; b < 10; b++) {
                if (!certified[a] || chosen[a] || certified[b] || !chosen[b]) continue;
                same = false;
                wrong |= t.key[a] - t.key[b] > t.radius[a] + t.radius[b];
            }
        struct mr_judgement j = fake_judge(&t, ids, NULL, false);
        ck_assert_int_eq(j.verdict, wrong ? MR_WRONG : same ? MR_EXACT : MR_ROUNDING);
        counts[j.verdict]++;
    }
    ck_assert_int_gt(counts[MR_WRONG], 20);
    ck_assert_int_gt(counts[MR_ROUNDING], 20);
}
END_TEST

Suite *suite_verdict(void)
{
    Suite *s = suite_create("verdict");
    TCase *c = tcase_create("verdict");
    tcase_add_test(c, verify_exact);
    tcase_add_test(c, verify_wrong_set);
    tcase_add_test(c, verify_rounding);
    tcase_add_test(c, verify_order);
    tcase_add_test(c, verify_tie);
    tcase_add_test(c, verify_undecided);
    tcase_add_test(c, verify_nonfinite);
    tcase_add_test(c, reject_ids);
    tcase_add_test(c, verify_pairing);
    tcase_add_test(c, corroborate_pairing);
    tcase_add_test(c, verify_perturbed);
    tcase_add_test(c, corroborate_pairs);
    suite_add_tcase(s, c);
    return s;
}
