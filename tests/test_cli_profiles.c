/* moeref profiles; moeref route CASE --profiles. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cli.h"

Suite *suite_cli_profiles(void);

START_TEST(verify_table)
{
    cli("profiles");
    cli_fine();
    size_t width = 0, column = 0;
    for (const char *p = cli_last.out; *p; p++) {
        column = *p == '\n' ? 0 : column + 1;
        if (column > width) width = column;
    }
    ck_assert_uint_le(width, 120);
    ck_assert_ptr_nonnull(strstr(cli_last.out, "<=512 rows: tree"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "unverified"));
    ck_assert_ptr_null(strstr(cli_last.out, "@25b379e"));
    cli("profiles", "-v");
    cli_fine();
    ck_assert_ptr_nonnull(strstr(cli_last.out, "moe_fused_gate.cuh @25b379e"));
    cli("profiles", "-q");
    cli_fine();
    ck_assert_uint_eq(cli_last.out_bytes, 0);
    cli("profiles", "--json", "-");
    cli_fine();
    json_t *doc = cli_json(), *row, *cell;
    size_t i;
    const char *name;
    json_t *rows = json_object_get(doc, "rows");
    ck_assert_uint_gt(json_array_size(rows), 40);
    json_array_foreach(rows, i, row) {
        ck_assert(json_is_boolean(json_object_get(row, "verified")));
        json_object_foreach(json_object_get(row, "cells"), name, cell)
            ck_assert_uint_gt(json_string_length(json_object_get(cell, "source")), 8);
    }
    json_decref(doc);
}
END_TEST

/* Two tokens: nothing special; experts 8 and 16 of 384 tied at the cut. */
static void put_case(void)
{
    static float logits[2 * 384];
    for (int e = 0; e < 2 * 384; e++) logits[e] = -2 - 0.002f * (float)(e % 384);
    logits[7] = logits[384 + 7] = 3;
    logits[8] = 1;
    logits[384 + 8] = logits[384 + 16] = 1;
    static const float bias[384];
    cli_put_tensors("tied.st", (struct cli_tensor[]){
        {"all.model.layers.0.mlp.gate.logits", MR_F32, 2, 384, logits},
        {CLI_BIAS, MR_F32, 384, 0, bias}}, 2);
    cli_put_json("tied.json",
                 "{'moeref_case':1,'name':'tied','input':'logits','capture':['tied.st'],"
                 "'checkpoint':['tied.st'],'router':{'experts':384,'top_k':2,'score':'sigmoid',"
                 "'bias':true,'n_group':1,'topk_group':1,'norm_topk_prob':true,"
                 "'routed_scaling_factor':1.0}}");
}

START_TEST(verify_route_profiles)
{
    cli("route", cli_at("case.json"), "--profiles", "--json", "-");
    cli_fine();
    json_t *doc = cli_json(), *p;
    size_t i;
    ck_assert_int_eq(json_integer_value(json_object_get(doc, "tokens")), CLI_TOKENS);
    json_array_foreach(json_object_get(doc, "profiles"), i, p) {
        if (json_object_get(p, "unserved")) continue;
        ck_assert_int_eq(json_integer_value(json_object_get(p, "same")), CLI_TOKENS);
    }
    json_decref(doc);
    put_case();
    cli("route", cli_at("tied.json"), "--profiles", "--threads", "3");
    cli_fine();
    ck_assert_ptr_nonnull(strstr(cli_last.out, "token 1: certified 7 8"));
    ck_assert_ptr_null(strstr(cli_last.out, "token 0: certified"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "sglang-jit (tie rule): 7 16"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "as hf for this router"));
    cli("route", cli_at("tied.json"), "--profiles", "-q", "--json", cli_at("a.json"), "--threads",
        "1");
    cli_fine();
    ck_assert_uint_eq(cli_last.out_bytes, 0);
    cli("route", cli_at("tied.json"), "--profiles", "-q", "--json", cli_at("b.json"), "--threads",
        "5");
    cli_fine();
    ck_assert(cli_same(cli_at("a.json"), cli_at("b.json")));
}
END_TEST

START_TEST(reject_bad_use)
{
    cli_remember();
    cli("profiles", "hf");
    cli_refused(2, "takes no arguments", NULL);
    cli("profiles", "--josn", "-");
    cli_refused(2, "--josn", NULL);
    cli("route", cli_at("case.json"), "--profiles", "--tokens", cli_at("t.st"));
    cli_refused(2, "--profiles goes without", NULL);
    cli("route", cli_at("case.json"), "--profiles", "--arith", "fp32");
    cli_refused(2, "--profiles goes without", NULL);
    cli("route", cli_at("case.json"), "--profiles", "--phase", "nix");
    cli_refused(3, "no phase 'nix'", NULL);
    cli("route", cli_at("case.json"), "--profiles", "--layers", "77");
    cli_refused(3, "no layer", NULL);
    cli("route", cli_at("case.json"), "--profiles", "--from", "logits");
    cli_refused(3, "no logits", NULL);
}
END_TEST

Suite *suite_cli_profiles(void)
{
    Suite *suite = suite_create("cli_profiles");
    TCase *tc = tcase_create("profiles");
    tcase_add_checked_fixture(tc, cli_start, cli_stop);
    tcase_add_test(tc, verify_table);
    tcase_add_test(tc, verify_route_profiles);
    tcase_add_test(tc, reject_bad_use);
    suite_add_tcase(suite, tc);
    return suite;
}
