/* Profiles' rows against what engines' kernels gave on an H200 for the same logits
 * (data/engines/profiles, ROWS): ids, their order and all bits of all weights. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/profile_record.h"
#include "support/cli.h"

Suite *suite_profile_records(void);

#define FOLDER "data/engines/profiles/"
enum { MOST = 128 };

struct recording {
    char file[128], type[8], name[64]; /* case.type-logits/kernel.mROWS; of the logits; the case */
    char profile[32], kernel[32];
    const struct mr_profile_row *row;
    struct mr_case *c;
    struct mr_safetensors *st;
};
static struct recording recordings[MOST];
static size_t count;

static void parse(char *line, struct recording *r)
{
    int used = 0;
    char at[128];
    ck_assert_msg(sscanf(line, "%127s %31s %n", r->file, r->profile, &used) == 2 && used &&
                      strlen(line + used) > 0 && strlen(line + used) < sizeof r->kernel,
                  "ROWS: '%s'", line);
    strcpy(r->kernel, line + used);
    strcpy(at, r->file);
    char *slash = strchr(at, '/');
    ck_assert_ptr_nonnull(slash);
    *slash = '\0';
    char *type = strrchr(at, '.'), *end = type ? strchr(type, '-') : NULL;
    ck_assert_ptr_nonnull(end);
    *type = *end = '\0';
    ck_assert(strlen(type + 1) < sizeof r->type && strlen(at) < sizeof r->name);
    strcpy(r->type, type + 1);
    strcpy(r->name, at);
}

/* The case of exact logits, made as its users make it; once. */
static struct mr_case *exported(const struct recording *r)
{
    char path[256], made[256];
    struct mr_case *c;
    struct mr_error err = {{0}};
    for (const struct recording *p = recordings; p < r; p++)
        if (!strcmp(p->name, r->name) && !strcmp(p->type, r->type)) return p->c;
    snprintf(path, sizeof path, "cases/%s.json", r->name);
    cli("export", path, "--logits", r->type, "-o", cli_at("."));
    ck_assert_msg(cli_last.status == 0, "%s", cli_last.err);
    snprintf(made, sizeof made, "%s.%s-logits.json", r->name, r->type);
    ck_assert_msg(!mr_case_load(cli_at(made), NULL, &c, &err), "%s", err.text);
    return c;
}

static void open_all(void)
{
    char line[256], path[256];
    struct mr_error err = {{0}};
    FILE *f = fopen(FOLDER "ROWS", "r");
    ck_assert_ptr_nonnull(f);
    cli_start();
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (*line == '#' || !*line) continue;
        ck_assert_uint_lt(count, MOST);
        struct recording *r = &recordings[count++];
        parse(line, r);
        r->c = exported(r);
        snprintf(path, sizeof path, FOLDER "%.128s.safetensors", r->file);
        ck_assert_msg(!mr_safetensors_open(path, &r->st, &err), "%s", err.text);
        const struct mr_profile *p = mr_profile_find(r->profile);
        ck_assert_msg(p != NULL, "%s", r->profile);
        ck_assert_msg(!mr_profile_kernel(p, r->kernel, mr_case_router(r->c), false, &r->row, &err),
                      "%s", err.text);
    }
    fclose(f);
}

static void close_all(void)
{
    for (size_t i = 0; i < count; i++) {
        bool first = true;
        for (size_t j = 0; j < i; j++) first &= recordings[j].c != recordings[i].c;
        mr_safetensors_close(recordings[i].st);
        if (!first) continue;
        char made[128];
        static const char *const endings[] = {"json", "safetensors"};
        for (int e = 0; e < 2; e++) {
            snprintf(made, sizeof made, "%.60s.%.7s-logits.%s", recordings[i].name,
                     recordings[i].type, endings[e]);
            remove(cli_at(made));
        }
    }
    for (size_t i = count; i-- > 0;) {
        bool later = false;
        for (size_t j = 0; j < i; j++) later |= recordings[j].c == recordings[i].c;
        if (!later) mr_case_free(recordings[i].c);
    }
    count = 0;
    cli_stop();
}

START_TEST(validate_recordings)
{
    size_t tokens = 0, weights = 0;
    for (size_t i = 0; i < count; i++) {
        const struct recording *r = &recordings[i];
        struct mr_profile_record got;
        struct mr_error err = {{0}};
        ck_assert_msg(!mr_profile_record(r->c, r->st, r->row, &got, &err), "%s", err.text);
        ck_assert_msg(mr_profile_record_agrees(r->row, &got), "%s: %s, %s: %s", r->file, r->profile,
                      r->kernel, got.first);
        ck_assert(got.tokens == 128 || (got.tokens == 32 && strstr(r->file, ".m1")));
        ck_assert_uint_eq(got.weights, got.tokens * (size_t)mr_case_router(r->c)->top_k);
        tokens += got.tokens;
        weights += got.weights;
    }
    ck_assert_uint_gt(count, 40);
    ck_assert_uint_eq(weights, tokens * 8);
}
END_TEST

/* A row calls itself compared if, and only if, recordings here compare it, or a capture does. */
START_TEST(verify_compared)
{
    const struct mr_profile_row *row;
    for (size_t i = 0; (row = mr_profile_row_at(i)) != NULL; i++) {
        bool recorded = false;
        for (size_t j = 0; j < count; j++) recorded |= recordings[j].row == row;
        recorded |= row->checked && strstr(row->checked, "data/captures/") != NULL;
        ck_assert_msg(recorded == mr_profile_compared(row), "%s, %s, %s: %s", row->profile,
                      mr_profile_kind_name(row->kind), row->kernel,
                      row->checked ? row->checked : "unverified");
    }
}
END_TEST

/* Whether a row with another value of the cell still gives all recordings of it. */
static bool survives(const struct mr_profile_row *row, enum mr_cell cell, unsigned char value)
{
    struct mr_profile_row changed = *row;
    bool all = true;
    changed.cell[cell].value = value;
    for (size_t i = 0; i < count && all; i++) {
        struct mr_profile_record got;
        if (recordings[i].row != row) continue;
        ck_assert(!mr_profile_record(recordings[i].c, recordings[i].st, &changed, &got, NULL));
        all = mr_profile_record_agrees(&changed, &got);
        ck_assert_int_eq(all, !got.first[0]);
    }
    return all;
}

/* The comparison sees a score's form, the order of a sum where the row knows it, and the type of the
 * weights, in every row. */
START_TEST(reject_changed_rows)
{
    const struct mr_profile_row *row;
    for (size_t i = 0; (row = mr_profile_row_at(i)) != NULL; i++) {
        bool recorded = false;
        for (size_t j = 0; j < count; j++) recorded |= recordings[j].row == row;
        if (!recorded) continue;
        enum mr_score_form form = row->cell[MR_CELL_SCORE].value;
        enum mr_score_form other = form < MR_FORM_SIGMOID_TANH       ? MR_FORM_SIGMOID_TANH
                                   : form < MR_FORM_SOFTMAX_MULTIPLY ? MR_FORM_SIGMOID_EXP
                                   : form == MR_FORM_SOFTMAX_DIVIDE  ? MR_FORM_SOFTMAX_TRITON
                                                                     : MR_FORM_SOFTMAX_DIVIDE;
        bool sequential = row->cell[MR_CELL_SUM].value == MR_SUM_SEQUENTIAL;
        ck_assert_msg(!survives(row, MR_CELL_SCORE, (unsigned char)other), "%s, %s: score",
                      row->profile, row->kernel);
        ck_assert_msg(row->cell[MR_CELL_SUM].value == MR_SUM_UNKNOWN ||
                          !survives(row, MR_CELL_SUM,
                                    sequential ? MR_SUM_BUTTERFLY : MR_SUM_SEQUENTIAL),
                      "%s, %s: sum", row->profile, row->kernel);
        ck_assert_msg(!survives(row, MR_CELL_OUTPUT,
                                row->cell[MR_CELL_OUTPUT].value == MR_PROFILE_FP32
                                    ? MR_PROFILE_BF16 : MR_PROFILE_FP32),
                      "%s, %s: output", row->profile, row->kernel);
    }
}
END_TEST

START_TEST(reject_bad_recordings)
{
    const struct recording *r = &recordings[0];
    struct mr_profile_record got;
    struct mr_error err = {{0}};
    struct mr_case *hidden;
    const struct recording *other = r;
    while (!strcmp(other->name, r->name)) other++;
    ck_assert(!mr_case_load("cases/glm4moe-tiny.json", NULL, &hidden, &err));
    ck_assert_int_eq(mr_profile_record(hidden, r->st, r->row, &got, &err), MR_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "starts from hidden states"));
    mr_case_free(hidden);
    /* Of another case: found out where names or shapes part, else by the bits. */
    if (!mr_profile_record(other->c, r->st, r->row, &got, &err))
        ck_assert(!mr_profile_record_agrees(r->row, &got));
    char made[128], path[256];
    snprintf(made, sizeof made, "%.60s.%.7s-logits.json", r->name, r->type);
    snprintf(path, sizeof path, FOLDER "%.128s.safetensors", r->file);
    cli("profiles", cli_at(made), "--observed", path, "--profile", r->profile, "--kernel",
        r->kernel);
    cli_fine();
    ck_assert_ptr_nonnull(strstr(cli_last.out, "1024 of 1024 weights with the same bits"));
    cli("profiles", cli_at(made), "--observed", path, "--profile", "flashinfer-tc");
    ck_assert_int_eq(cli_last.status, 1);
    ck_assert_ptr_nonnull(strstr(cli_last.out, "first: layer 0"));
    cli_remember();
    cli("profiles", cli_at(made), "--observed", path);
    cli_refused(2, "names no profile", NULL);
    cli("profiles", cli_at(made), "--observed", path, "--profile", "vllm", "--kernel", "none");
    cli_refused(3, "no kernel none", NULL);
    cli("profiles", cli_at(made), "--observed", path, "--profile", "nix");
    cli_refused(2, "no such profile", NULL);
    cli("profiles", "--observed", path);
    cli_refused(2, "goes with a CASE", NULL);
    cli("profiles", cli_at(made), "--observed", cli_at("hidden.st"), "--profile", "vllm");
    cli_refused(3, "\"rows\"", NULL);
}
END_TEST

Suite *suite_profile_records(void)
{
    Suite *s = suite_create("profile_records");
    TCase *tc = tcase_create("h200");
    tcase_set_timeout(tc, 240);
    tcase_add_unchecked_fixture(tc, open_all, close_all);
    tcase_add_test(tc, validate_recordings);
    tcase_add_test(tc, verify_compared);
    tcase_add_test(tc, reject_changed_rows);
    tcase_add_test(tc, reject_bad_recordings);
    suite_add_tcase(s, tc);
    return s;
}
