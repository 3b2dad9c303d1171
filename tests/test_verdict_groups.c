/* The judge under group-limited selection, against every choice of groups in turn. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "support/fake_token.h"
#include "support/routed.h"

Suite *suite_verdict_groups(void);

enum { GROUPS = 5, SIZE = 3, EXPERTS = GROUPS * SIZE, KEPT = 3, K = 4 };

static int sweep(void)
{
    return getenv("MOEREF_LONG") ? 100000 : 2000;
}

static void grouped(struct fake_token *t, enum mr_group_score rule)
{
    fake_new(t, EXPERTS, K);
    t->router.n_group = GROUPS;
    t->router.topk_group = KEPT;
    t->router.group_score = rule;
}

/* Score of group g of the keys moved by `side` radii. A sum of two binary32 keys is rounded once in
 * a kernel; radii here are far above that. */
static double score(const struct fake_token *t, int g, double side)
{
    double first = -HUGE_VAL, second = -HUGE_VAL;
    for (int e = g * SIZE; e < (g + 1) * SIZE; e++) {
        double k = t->key[e] + side * t->radius[e];
        second = fmax(second, fmin(first, k));
        first = fmax(first, k);
    }
    return t->router.group_score == MR_GROUP_MAX ? first : first + second;
}

/* Whether a kernel may have kept just these groups, and chosen these experts of them. */
static bool possible(const struct fake_token *t, unsigned kept, unsigned chosen)
{
    for (int f = 0; f < GROUPS; f++)
        for (int g = 0; g < GROUPS; g++)
            if (!(kept >> f & 1) && kept >> g & 1 && score(t, f, -1) > score(t, g, 1)) return false;
    for (int a = 0; a < EXPERTS; a++) {
        if (chosen >> a & 1 && !(kept >> (a / SIZE) & 1)) return false;
        for (int b = 0; b < EXPERTS; b++)
            if (kept >> (a / SIZE) & 1 && !(chosen >> a & 1) && chosen >> b & 1 &&
                t->key[a] - t->radius[a] > t->key[b] + t->radius[b])
                return false;
    }
    return true;
}

static bool explained(const struct fake_token *t, const int64_t *ids)
{
    unsigned chosen = 0;
    for (int i = 0; i < K; i++) chosen |= 1u << ids[i];
    for (unsigned kept = 0; kept < 1u << GROUPS; kept++)
        if (__builtin_popcount(kept) == KEPT && possible(t, kept, chosen)) return true;
    return false;
}

static bool same_set(const struct fake_token *t, const int64_t *ids)
{
    unsigned a = 0, b = 0;
    for (int i = 0; i < K; i++) {
        a |= 1u << ids[i];
        b |= 1u << t->ids[i];
    }
    return a == b;
}

static void any_ids(int64_t *ids, uint64_t *state)
{
    unsigned chosen = 0;
    for (int i = 0; i < K; i++) {
        do ids[i] = (int64_t)(routed_random(state) % EXPERTS);
        while (chosen >> ids[i] & 1);
        chosen |= 1u << ids[i];
    }
}

/* Claims near the right one and far from it; radii from none to more than the keys' spread. */
START_TEST(corroborate_groups)
{
    uint64_t state = 11 + (uint64_t)_i;
    int counts[MR_VERDICT_COUNT] = {0};
    for (int n = 0; n < sweep(); n++) {
        struct fake_token t, moved;
        int64_t ids[K];
        grouped(&t, _i ? MR_GROUP_MAX : MR_GROUP_TOP2_SUM);
        double size = n % 3 ? 0.2 : 0.02;
        for (int e = 0; e < EXPERTS; e++) {
            t.key[e] = routed_uniform(&state);
            t.radius[e] = size * fabs(routed_uniform(&state));
        }
        fake_certify(&t);
        moved = t;
        for (int e = 0; e < EXPERTS; e++) moved.key[e] += 3 * t.radius[e] * routed_uniform(&state);
        fake_certify(&moved);
        fake_right(&moved, ids, NULL);
        if (n % 4 == 0) any_ids(ids, &state);
        enum mr_verdict want = same_set(&t, ids) ? MR_EXACT
                               : explained(&t, ids) ? MR_ROUNDING : MR_WRONG;
        struct mr_judgement j = fake_judge(&t, ids, NULL, false);
        ck_assert_msg(j.verdict == want, "%d: %s by %s, expected %s", n, mr_verdict_name(j.verdict),
                      mr_cause_name(j.cause), mr_verdict_name(want));
        counts[want]++;
    }
    ck_assert_int_gt(counts[MR_EXACT], 20);
    ck_assert_int_gt(counts[MR_ROUNDING], 20);
    ck_assert_int_gt(counts[MR_WRONG], 20);
}
END_TEST

/* A kernel whose keys are within their radii: never WRONG. */
START_TEST(verify_grouped_rounding)
{
    uint64_t state = 13 + (uint64_t)_i;
    int flips = 0;
    for (int n = 0; n < sweep(); n++) {
        struct fake_token t, moved;
        int64_t ids[K];
        grouped(&t, _i ? MR_GROUP_MAX : MR_GROUP_TOP2_SUM);
        for (int e = 0; e < EXPERTS; e++) {
            t.key[e] = routed_uniform(&state) - 1;
            t.radius[e] = 0.1 * fabs(routed_uniform(&state));
        }
        fake_certify(&t);
        moved = t;
        for (int e = 0; e < EXPERTS; e++)
            moved.key[e] += routed_random(&state) % 2 ? t.radius[e] : -t.radius[e];
        fake_certify(&moved);
        fake_right(&moved, ids, NULL);
        struct mr_judgement j = fake_judge(&t, ids, NULL, false);
        ck_assert_msg(j.verdict == MR_EXACT || j.verdict == MR_ROUNDING, "%d: %s by %s", n,
                      mr_verdict_name(j.verdict), mr_cause_name(j.cause));
        flips += j.verdict == MR_ROUNDING;
    }
    ck_assert_int_gt(flips, 100);
}
END_TEST

/* Groups 0 to 4 with keys 0.9, 0.8 ... in each group's two best; the third is low. */
static void stairs(struct fake_token *t)
{
    grouped(t, MR_GROUP_TOP2_SUM);
    for (int e = 0; e < EXPERTS; e++) {
        t->key[e] = e % SIZE == 2 ? 0.01 * e : 0.9 - 0.1 * (e / SIZE);
        t->radius[e] = 0.001;
    }
    fake_certify(t);
}

START_TEST(verify_group_names)
{
    struct fake_token t;
    stairs(&t); /* certified: both of groups 0 and 1; group 2 is kept, too */
    struct mr_judgement j = fake_judge(&t, (const int64_t[]){0, 1, 3, 9}, NULL, false);
    ck_assert_int_eq(j.verdict, MR_WRONG);
    ck_assert_int_eq(j.cause, MR_CAUSE_GROUP);
    ck_assert_int_eq(j.omitted, 2);
    ck_assert_int_eq(j.included, 3);
    ck_assert_double_eq_tol(j.difference, 0.2, 1e-12);
    j = fake_judge(&t, (const int64_t[]){0, 1, 3, 6}, NULL, false);
    ck_assert_int_eq(j.verdict, MR_WRONG);
    ck_assert_int_eq(j.cause, MR_CAUSE_SET);
    ck_assert_int_eq(j.omitted, 4);
    ck_assert_int_eq(j.included, 6);
    /* One of each of four groups: no three groups hold them. */
    for (int e = 0; e < EXPERTS; e++) t.radius[e] = 9;
    j = fake_judge(&t, (const int64_t[]){0, 3, 6, 9}, NULL, false);
    ck_assert_int_eq(j.verdict, MR_WRONG);
    ck_assert_int_eq(j.cause, MR_CAUSE_GROUP);
}
END_TEST

/* Groups that tie exactly: whichever is kept, its experts are right. */
START_TEST(verify_group_tie)
{
    struct fake_token t;
    grouped(&t, MR_GROUP_TOP2_SUM);
    for (int e = 0; e < EXPERTS; e++) t.key[e] = e % SIZE == 2 ? 0 : 0.5 - 0.1 * (e % SIZE);
    t.key[0] = 0.6; /* group 0 is kept anyway */
    fake_certify(&t);
    t.routed.certificate = MR_CERT_TIE;
    t.routed.tie_count = 0;
    static const int64_t right[3][K] = {{0, 3, 6, 1}, {0, 9, 12, 1}, {0, 3, 12, 13}};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(fake_judge(&t, right[i], NULL, false).verdict, MR_TIE);
    ck_assert_int_eq(fake_judge(&t, (const int64_t[]){0, 3, 6, 5}, NULL, false).verdict, MR_WRONG);
    ck_assert_int_eq(fake_judge(&t, (const int64_t[]){0, 3, 6, 9}, NULL, false).verdict, MR_WRONG);
}
END_TEST

Suite *suite_verdict_groups(void)
{
    Suite *s = suite_create("verdict_groups");
    TCase *c = tcase_create("groups");
    tcase_add_loop_test(c, corroborate_groups, 0, 2);
    tcase_add_loop_test(c, verify_grouped_rounding, 0, 2);
    tcase_add_test(c, verify_group_names);
    tcase_add_test(c, verify_group_tie);
    suite_add_tcase(s, c);
    return s;
}
