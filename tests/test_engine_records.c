/* What released engines gave on an H200 (data/engines, a folder a case), judged on the CPU: counts
 * of verdicts are those of data/engines/EXPECTED, and identified sums make the logits again, bit
 * for bit. And recordings made here, right and spoilt, for the check itself. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../ref/arith/replay.h"
#include "support/cli.h"
#include "support/engine_records.h"

Suite *suite_engine_records(void);

#define RECORDINGS "data/engines"

START_TEST(validate_recordings)
{
    struct engine_records r;
    ck_assert_msg(engine_records_check(RECORDINGS, &r), "%s", r.fault);
    ck_assert_uint_gt(r.files, 0);
    ck_assert_uint_gt(r.rows, 0);
}
END_TEST

/* A recording of the small case: certified ids of its tokens, and logits of one sum. */
static void put_recording(const char *name, bool swapped, bool spoilt)
{
    struct mr_safetensors *certified;
    struct mr_tensor ids;
    struct cli_values v;
    struct mr_arith arith;
    struct mr_replay *replay;
    static float logits[CLI_TOKENS * CLI_EXPERTS];
    int32_t chosen[CLI_TOKENS * CLI_TOP_K];
    cli_values(&v);
    cli("route", cli_at("case.json"), "--tokens", cli_at("certified.st"), "-q");
    cli_fine();
    ck_assert(!mr_safetensors_open(cli_at("certified.st"), &certified, NULL));
    ck_assert(mr_safetensors_find(certified, "p.model.layers.0.mlp.topk_ids", &ids));
    memcpy(chosen, ids.data, sizeof chosen);
    mr_safetensors_close(certified);
    for (int k = 0; swapped && k < CLI_TOP_K; k++) chosen[k] = k == 0; /* 1 0 0 0 */
    const struct mr_gemm gemm = {{v.hidden, MR_BF16, CLI_TOKENS, CLI_HIDDEN},
                                 {v.gate, MR_BF16, CLI_EXPERTS, CLI_HIDDEN}, .gate_bias = NULL};
    ck_assert(!mr_arith_parse("fma/runs:4", &arith, NULL));
    ck_assert(!mr_replay_new(&arith, &gemm, &replay, NULL));
    ck_assert(!mr_replay_rows(replay, 0, CLI_TOKENS, logits, NULL));
    mr_replay_free(replay);
    if (spoilt) logits[CLI_EXPERTS + 3] *= 1 + 0x1p-23f;
    cli_put_tensors(name,
                    (const struct cli_tensor[]){
                        {"p.model.layers.0.mlp.topk_ids", MR_I32, CLI_TOKENS, CLI_TOP_K, chosen},
                        {"p.model.layers.0.mlp.gate.logits", MR_F32, CLI_TOKENS, CLI_EXPERTS,
                         logits}},
                    2);
}

static void start(void)
{
    cli_start();
    mkdir(cli_at("engines"), 0777);
    mkdir(cli_at("engines/small"), 0777);
}

static void stop(void)
{
    remove(cli_at("engines/small/k.m9.safetensors"));
    rmdir(cli_at("engines/small"));
    remove(cli_at("engines/EXPECTED"));
    cli_stop();
}

#define FILE9 "small/k.m9.safetensors"
#define MAKE "make small export FOLDER/case.json\n"

/* With FOLDER in its place. */
static void put_expected(const char *text)
{
    char all[2048] = "";
    const char *at = strstr(text, "FOLDER");
    if (at) snprintf(all, sizeof all, "%.*s%s%s", (int)(at - text), text, cli_at("."), at + 6);
    else snprintf(all, sizeof all, "%s", text);
    cli_put("engines/EXPECTED", all, strlen(all));
}

START_TEST(corroborate_own_recording)
{
    struct engine_records r;
    put_recording("engines/" FILE9, false, false);
    put_expected("# a comment\n\nreplay " FILE9 " 144 fma/runs:4\n" MAKE "judge " FILE9
                 " 9 9 0 0 0 0 0 0\n");
    ck_assert_msg(engine_records_check(cli_at("engines"), &r), "%s", r.fault);
    ck_assert_uint_eq(r.files, 1);
    ck_assert_uint_eq(r.rows, 9);
    ck_assert_uint_eq(r.lines, 1);
    ck_assert_uint_eq(r.logits, 144);
    put_recording("engines/" FILE9, true, true);
    put_expected(MAKE "judge " FILE9 " 9 8 0 0 0 0 1 0\n");
    ck_assert_msg(engine_records_check(cli_at("engines"), &r), "%s", r.fault);
}
END_TEST

static const struct {
    bool swapped, spoilt;
    const char *expected, *fault;
} bad[] = {
    {true, false, MAKE "judge " FILE9 " 9 9 0 0 0 0 0 0\n", "8 rows exact, expected 9"},
    {false, false, MAKE "judge " FILE9 " 8 8 0 0 0 0 0 0\n", "9 rows, expected 8"},
    {false, true, MAKE "judge " FILE9 " 9 9 0 0 0 0 0 0\nreplay " FILE9 " 144 fma/runs:4\n",
     "token 1, expert 3"},
    {false, false, MAKE "judge " FILE9 " 9 9 0 0 0 0 0 0\nreplay " FILE9 " 144 fma/runs:2\n",
     "replayed"},
    {false, false, MAKE "judge " FILE9 " 9 9 0 0 0 0 0 0\nreplay " FILE9 " 9 fma/runs:4\n",
     "144 logits, expected 9"},
    {false, false, MAKE, "EXPECTED has no line for it"},
    {false, false, MAKE "judge " FILE9 " 9 9 0 0 0 0 0 0\njudge small/none 1 1 0 0 0 0 0 0\n",
     "small/none"},
    {false, false, MAKE "judge " FILE9 " 9 9 0 0 0 0 0\n", "8 numbers"},
    {false, false, MAKE "guess\n", "'guess'"},
    {false, false, "make small export none.json\n", "none.json"},
    {false, false, "judge " FILE9 " 9 9 0 0 0 0 0 0\n", "cases/small.json"}};

START_TEST(reject_recording)
{
    struct engine_records r;
    put_recording("engines/" FILE9, bad[_i].swapped, bad[_i].spoilt);
    put_expected(bad[_i].expected);
    ck_assert(!engine_records_check(cli_at("engines"), &r));
    ck_assert_msg(strstr(r.fault, bad[_i].fault), "%s", r.fault);
}
END_TEST

Suite *suite_engine_records(void)
{
    Suite *s = suite_create("engine_records");
    TCase *h200 = tcase_create("h200"), *own = tcase_create("own");
    tcase_set_timeout(h200, 240);
    tcase_add_checked_fixture(h200, cli_start, cli_stop);
    tcase_add_test(h200, validate_recordings);
    tcase_set_timeout(own, 60);
    tcase_add_checked_fixture(own, start, stop);
    tcase_add_test(own, corroborate_own_recording);
    tcase_add_loop_test(own, reject_recording, 0, sizeof bad / sizeof *bad);
    suite_add_tcase(s, h200);
    suite_add_tcase(s, own);
    return s;
}
