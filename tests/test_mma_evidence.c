/* The tensor-core model against an H200: every result of data/mma-h200 (62 instructions, 20 classes
 * of operands), by the library's reference, by its fast chains and by an oracle of the tests. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/arith/mma.h"
#include "../ref/arith/mma_chain.h"
#include "../ref/io/safetensors.h"
#include "support/mma_oracle.h"

enum { OUTPUTS = MMA_ROWS * MMA_COLS };

static struct mr_safetensors *file;

static bool thorough(void)
{
    return getenv("MOEREF_LONG") != NULL;
}

static void open_file(void)
{
    struct mr_error err;
    if (mr_safetensors_open("data/mma-h200/steps.safetensors", &file, &err) != MR_OK)
        ck_abort_msg("%s", err.text);
}

static void close_file(void)
{
    mr_safetensors_close(file);
    file = NULL;
}

static struct mr_tensor tensor(const char *base, const char *part)
{
    char name[128];
    struct mr_tensor t;
    snprintf(name, sizeof name, "%s.%s", base, part);
    if (!mr_safetensors_find(file, name, &t)) ck_abort_msg("no tensor %s", name);
    return t;
}

/* The n encodings from element `at` on, as words. */
static void read_words(const struct mr_tensor *t, size_t at, size_t n, const struct mma_format *f,
                       uint32_t *out)
{
    size_t bytes = (size_t)f->bits / 8;
    for (size_t i = 0; i < n; i++) {
        out[i] = 0;
        memcpy(&out[i], (const char *)t->data + (at + i) * bytes, bytes);
    }
}

/* An instruction of the recordings, from the entries NAME:SET:K of the metadata. */
struct recorded {
    char name[64];
    const struct mma_set *set;
    size_t k;
    struct oracle_rule rule;
    bool no_c;
    const struct mr_mma *mma; /* NULL for integers */
};

static const struct mma_set *find_set(const char *name, size_t length)
{
    for (int s = 0; s < mma_set_count; s++)
        if (strlen(mma_sets[s].name) == length && !memcmp(mma_sets[s].name, name, length))
            return &mma_sets[s];
    ck_abort_msg("no set %.*s", (int)length, name);
    return NULL;
}

/* The library's name: operand types of the set, and mma.sync's own rows for the 8-bit types. */
static const struct mr_mma *library_row(const char *instruction, const struct mma_set *set)
{
    char name[64];
    bool sync_fp8 = instruction[0] == 'm' && set->a->bits == 8;
    snprintf(name, sizeof name, "hopper%s-%s%s%s%s", sync_fp8 ? "-mma" : "", set->a->name,
             set->b == set->a ? "" : "-", set->b == set->a ? "" : set->b->name,
             set->c == &mma_fp16 ? "-fp16" : "");
    const struct mr_mma *mma = mr_mma_find(name, strlen(name));
    if (!mma) ck_abort_msg("the library has no %s", name);
    return mma;
}

static size_t read_instructions(struct recorded *out, size_t most)
{
    const char *list = mr_safetensors_metadata(file, "instructions");
    ck_assert_ptr_nonnull(list);
    size_t n = 0;
    for (const char *s = list; *s; n++) {
        const char *end = strchr(s, ','), *colon = strchr(s, ':');
        const char *second = strchr(colon + 1, ':');
        struct recorded *r = &out[n];
        ck_assert_uint_lt(n, most);
        ck_assert_uint_lt((size_t)(colon - s), sizeof r->name);
        memset(r, 0, sizeof *r);
        memcpy(r->name, s, (size_t)(colon - s));
        r->set = find_set(colon + 1, (size_t)(second - colon - 1));
        r->k = (size_t)atoi(second + 1);
        ck_assert(oracle_rule_of(r->name, &r->rule, &r->no_c));
        if (r->set->a != &mma_s8) r->mma = library_row(r->name, r->set);
        s = end ? end + 1 : s + strlen(s);
    }
    return n;
}

/* One class of one instruction: operands as recorded, k columns, results. */
struct block {
    uint32_t a[MMA_ROWS * MMA_MAX_K], b[MMA_COLS * MMA_MAX_K], c[OUTPUTS], d[OUTPUTS];
};

static void read_block(const struct recorded *r, size_t class_index, struct block *out)
{
    const struct mma_set *set = r->set;
    size_t pitch = (size_t)set->k;
    struct mr_tensor a = tensor(set->name, "a"), b = tensor(set->name, "b"),
                     c = tensor(set->name, "c"), d = tensor(r->name, "d");
    struct block all;
    read_words(&a, class_index * MMA_ROWS * pitch, MMA_ROWS * pitch, set->a, all.a);
    read_words(&b, class_index * MMA_COLS * pitch, MMA_COLS * pitch, set->b, all.b);
    read_words(&c, class_index * OUTPUTS, OUTPUTS, set->c, out->c);
    read_words(&d, class_index * OUTPUTS, OUTPUTS, set->c, out->d);
    for (size_t i = 0; i < MMA_ROWS; i++) memcpy(out->a + i * r->k, all.a + i * pitch, r->k * 4);
    for (size_t j = 0; j < MMA_COLS; j++) memcpy(out->b + j * r->k, all.b + j * pitch, r->k * 4);
    if (r->no_c) memset(out->c, 0, sizeof out->c);
}

static void same(const struct recorded *r, size_t class_index, size_t at, uint32_t got,
                 uint32_t want, const char *who)
{
    if (got != want)
        ck_abort_msg("%s, %s, row %zu, column %zu: %s 0x%x, the H200 0x%x", r->name,
                     mma_classes[class_index], at / MMA_COLS, at % MMA_COLS, who, got, want);
}

typedef void block_check(const struct recorded *r, size_t class_index, struct block *b);

static size_t each_block(block_check *check)
{
    static struct recorded all[96];
    static struct block b;
    size_t n = read_instructions(all, 96);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < (size_t)mma_class_count; c++) {
            read_block(&all[i], c, &b);
            check(&all[i], c, &b);
        }
    return n;
}

/* Stored operands are what the generator makes, class by class under the names in the file: the
 * recordings can be extended without storing more inputs. */
START_TEST(verify_recorded_operands_are_the_generators)
{
    char names[512] = "";
    for (int c = 0; c < mma_class_count; c++) {
        strcat(names, c ? "," : "");
        strcat(names, mma_classes[c]);
    }
    ck_assert_str_eq(mr_safetensors_metadata(file, "classes"), names);
    for (int s = 0; s < mma_set_count; s++)
        for (int c = 0; c < mma_class_count; c++) {
            const struct mma_set *set = &mma_sets[s];
            struct mma_tile made, stored = {0};
            size_t a = (size_t)(MMA_ROWS * set->k), b = (size_t)(MMA_COLS * set->k);
            struct mr_tensor ta = tensor(set->name, "a"), tb = tensor(set->name, "b"),
                             tc = tensor(set->name, "c");
            mma_tile_make(set, c, 0, &made);
            read_words(&ta, (size_t)c * a, a, set->a, stored.a);
            read_words(&tb, (size_t)c * b, b, set->b, stored.b);
            read_words(&tc, (size_t)c * OUTPUTS, OUTPUTS, set->c, stored.c);
            if (memcmp(&made, &stored, sizeof made))
                ck_abort_msg("%s, %s: stored operands are others", set->name, mma_classes[c]);
        }
}
END_TEST

static void negate_a(const struct recorded *r, struct block *b)
{
    uint32_t sign = 1u << (r->set->a->bits - 1);
    if (r->rule.negate)
        for (size_t i = 0; i < MMA_ROWS * r->k; i++) b->a[i] ^= sign;
}

static void by_reference(const struct recorded *r, size_t class_index, struct block *b)
{
    if (!r->mma) return;
    negate_a(r, b);
    for (size_t x = 0; x < OUTPUTS; x++) {
        uint32_t d = mr_mma_step(r->mma, b->a + x / MMA_COLS * r->k, b->b + x % MMA_COLS * r->k,
                                 r->k, b->c[x], NULL);
        same(r, class_index, x, d, b->d[x], "the reference says");
    }
}

START_TEST(validate_reference_on_an_h200)
{
    ck_assert_uint_eq(each_block(by_reference), 62);
}
END_TEST

static void store(uint8_t *out, const uint32_t *words, size_t n, const struct mma_format *f)
{
    size_t bytes = (size_t)f->bits / 8;
    for (size_t i = 0; i < n; i++) memcpy(out + i * bytes, &words[i], bytes);
}

static void by_chain(const struct recorded *r, size_t class_index, struct block *b)
{
    if (!r->mma) return;
    static uint8_t a_bytes[MMA_ROWS * MMA_MAX_K * 4], b_bytes[MMA_COLS * MMA_MAX_K * 4];
    struct mr_error err;
    struct mr_mma_packed *packed;
    negate_a(r, b);
    store(a_bytes, b->a, MMA_ROWS * r->k, r->set->a);
    store(b_bytes, b->b, MMA_COLS * r->k, r->set->b);
    struct mr_mma_operand x = {a_bytes, MMA_ROWS, r->k, r->k, NULL, 0};
    struct mr_mma_operand y = {b_bytes, MMA_COLS, r->k, r->k, NULL, 0};
    uint32_t d[OUTPUTS];
    if (mr_mma_pack(r->mma, &y, NULL, &packed, &err) != MR_OK ||
        mr_mma_chain(packed, &x, 0, r->k, b->c, d, &err) != MR_OK)
        ck_abort_msg("%s: %s", r->name, err.text);
    mr_mma_packed_free(packed);
    for (size_t i = 0; i < OUTPUTS; i++) same(r, class_index, i, d[i], b->d[i], "the chain says");
}

START_TEST(validate_chains_on_an_h200)
{
    each_block(by_chain);
}
END_TEST

static void by_oracle(const struct recorded *r, size_t class_index, struct block *b)
{
    for (size_t x = 0; x < OUTPUTS; x++) {
        if (!thorough() && x / MMA_COLS % 4 != class_index % 4) continue;
        uint32_t d = oracle_step(r->set, &r->rule, b->a + x / MMA_COLS * r->k,
                                 b->b + x % MMA_COLS * r->k, r->k, b->c[x]);
        same(r, class_index, x, d, b->d[x], "the oracle says");
    }
}

START_TEST(validate_oracle_on_an_h200)
{
    each_block(by_oracle);
}
END_TEST

/* How many results of one instruction another rule misses. */
static size_t missed(const char *instruction, const struct oracle_rule *rule)
{
    static struct recorded all[96];
    static struct block b;
    size_t n = read_instructions(all, 96), bad = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(all[i].name, instruction)) continue;
        for (size_t c = 0; c < (size_t)mma_class_count; c++) {
            read_block(&all[i], c, &b);
            for (size_t x = 0; x < OUTPUTS; x++)
                bad += b.d[x] != oracle_step(all[i].set, rule, b.a + x / MMA_COLS * all[i].k,
                                             b.b + x % MMA_COLS * all[i].k, all[i].k, b.c[x]);
        }
        return bad;
    }
    ck_abort_msg("no instruction %s", instruction);
    return 0;
}

/* The recordings tell the model from its neighbours: each wrong parameter is missed somewhere. */
START_TEST(validate_wrong_parameters_are_seen)
{
    static const struct {
        const char *instruction;
        struct oracle_rule rule; /* form, terms, bits, result, e_zero, plain_zero */
    } cases[] = {
        {"mma.m16n8k16.f32.bf16.bf16", {ORACLE_FUSED, 16, 25, 23, -133, false, false}},
        {"mma.m16n8k16.f32.bf16.bf16", {ORACLE_FUSED, 16, 25, 23, -132, true, false}},
        {"mma.m16n8k16.f32.bf16.bf16", {ORACLE_FUSED, 16, 25, 23, -134, true, false}},
        {"mma.m16n8k16.f32.bf16.bf16", {ORACLE_FUSED, 16, 24, 23, -133, true, false}},
        {"mma.m16n8k16.f32.bf16.bf16", {ORACLE_FUSED, 16, 26, 23, -133, true, false}},
        {"mma.m16n8k16.f32.bf16.bf16", {ORACLE_FUSED, 8, 25, 23, -133, true, false}},
        {"wgmma.m64n8k8.f32.tf32.tf32", {ORACLE_FUSED, 8, 25, 23, -132, true, false}},
        {"wgmma.m64n8k8.f32.tf32.tf32", {ORACLE_FUSED, 8, 25, 23, -134, true, false}},
        {"wgmma.m64n8k8.f32.tf32.tf32", {ORACLE_FUSED, 4, 25, 23, -133, true, false}},
        {"mma.m16n8k16.f16.f16.f16", {ORACLE_FUSED, 16, 25, 10, -22, true, false}},
        {"mma.m16n8k16.f16.f16.f16", {ORACLE_FUSED, 16, 25, 10, -20, true, false}},
        {"wgmma.m64n8k16.f16.f16.f16", {ORACLE_FUSED, 16, 25, 10, -22, true, false}},
        {"wgmma.m64n8k16.f16.f16.f16", {ORACLE_FUSED, 16, 25, 10, -20, true, false}},
        {"wgmma.m64n8k32.f32.e4m3.e4m3", {ORACLE_FUSED, 32, 12, 13, -133, true, false}},
        {"wgmma.m64n8k32.f32.e4m3.e4m3", {ORACLE_FUSED, 32, 14, 13, -133, true, false}},
        {"wgmma.m64n8k32.f32.e4m3.e4m3", {ORACLE_FUSED, 32, 13, 23, -133, true, false}},
        {"wgmma.m64n8k32.f32.e4m3.e4m3", {ORACLE_FUSED, 16, 13, 13, -133, true, false}},
        {"mma.m16n8k32.f32.e5m2.e5m2", {ORACLE_FUSED, 32, 25, 23, -133, true, false}},
        {"mma.m16n8k32.f32.e5m2.e5m2", {ORACLE_FUSED, 32, 13, 13, -133, true, false}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bad = missed(cases[i].instruction, &cases[i].rule);
        if (thorough())
            fprintf(stderr, "mma: %s, %d terms, %d bits, result %d, e_zero %d%s: %zu wrong\n",
                    cases[i].instruction, cases[i].rule.terms, cases[i].rule.bits,
                    cases[i].rule.result, cases[i].rule.e_zero,
                    cases[i].rule.plain_zero ? "" : ", signed zero", bad);
        ck_assert_msg(bad > 0, "%s: case %zu is not told apart", cases[i].instruction, i);
    }
}
END_TEST

static const struct mma_format *format_of(enum mr_mma_type type)
{
    static const struct mma_format *const all[] = {&mma_fp32, &mma_bf16, &mma_fp16,
                                                   &mma_tf32, &mma_e4m3, &mma_e5m2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, mr_mma_type_name(type))) return all[i];
    return NULL;
}

/* The oracle's rule for a row of the library's table; false: of a kind that it does not have. */
static bool rule_of_row(const struct mr_mma *mma, struct oracle_rule *rule)
{
    if (mma->form != MR_MMA_PLAIN && mma->form != MR_MMA_BY_FP16) return false;
    *rule = (struct oracle_rule){mma->form == MR_MMA_PLAIN ? ORACLE_FUSED : ORACLE_BY_FP16,
                                 mma->terms,
                                 mma->fraction,
                                 mma->rounding == MR_MMA_RZ_E8M13 ? 13 : 23,
                                 mma->e_zero,
                                 !mma->signed_zero,
                                 false};
    return true;
}

/* All rows of the table whose types have tiles, other architectures' too, on fresh tiles. */
START_TEST(corroborate_reference_and_oracle)
{
    static struct mma_tile t;
    size_t rows = 0;
    for (size_t i = 0; i < mr_mma_count(); i++) {
        const struct mr_mma *mma = mr_mma_at(i);
        struct oracle_rule rule;
        const struct mma_format *a = format_of(mma->a), *b = format_of(mma->b),
                                *c = format_of(mma->accumulator);
        const struct mma_set *set = NULL;
        for (int s = 0; s < mma_set_count; s++)
            if (mma_sets[s].a == a && mma_sets[s].b == b && mma_sets[s].c == c) set = &mma_sets[s];
        if (!set || !rule_of_row(mma, &rule)) continue;
        rows++;
        size_t k = (size_t)set->k;
        for (int class_index = 0; class_index < mma_class_count; class_index++) {
            mma_tile_make(set, class_index, 1000 + (uint32_t)i, &t);
            for (size_t x = 0; x < OUTPUTS; x++) {
                if (!thorough() && x % 8 != (i + (size_t)class_index + x / 8) % 8) continue;
                const uint32_t *p = t.a + x / MMA_COLS * k, *q = t.b + x % MMA_COLS * k;
                uint32_t got = mr_mma_step(mma, p, q, k, t.c[x], NULL);
                uint32_t want = oracle_step(set, &rule, p, q, k, t.c[x]);
                if (got != want)
                    ck_abort_msg("%s, %s, %zu: reference 0x%x, oracle 0x%x", mma->name,
                                 mma_classes[class_index], x, got, want);
            }
        }
    }
    ck_assert_uint_ge(rows, 40);
}
END_TEST

Suite *suite_mma_evidence(void);
Suite *suite_mma_evidence(void)
{
    Suite *s = suite_create("mma_evidence");
    TCase *t = tcase_create("h200");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, open_file, close_file);
    tcase_add_test(t, verify_recorded_operands_are_the_generators);
    tcase_add_test(t, validate_reference_on_an_h200);
    tcase_add_test(t, validate_chains_on_an_h200);
    tcase_add_test(t, validate_oracle_on_an_h200);
    tcase_add_test(t, validate_wrong_parameters_are_seen);
    tcase_add_test(t, corroborate_reference_and_oracle);
    suite_add_tcase(s, t);
    return s;
}
