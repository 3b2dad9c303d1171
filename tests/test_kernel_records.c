/* What the kernels of gpu/kernels gave on an H200 (data/kernels-h200, a folder a case), replayed on
 * the CPU; and recordings made here of the same kernels as host code, right and spoilt. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../gpu/observed_file.h"
#include "support/cli.h"
#include "support/kernel_run.h"
#include "support/recordings.h"

Suite *suite_kernel_records(void);

#define RECORDINGS "data/kernels-h200"

START_TEST(validate_recordings)
{
    struct recorded all = {0};
    struct dirent **entry;
    int n = scandir(RECORDINGS, &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char folder[512], path[512];
        snprintf(folder, sizeof folder, RECORDINGS "/%s", entry[i]->d_name);
        snprintf(path, sizeof path, "cases/%s.json", entry[i]->d_name);
        if (entry[i]->d_name[0] != '.')
            ck_assert_msg(recordings_check(folder, path, &all), "%s: %s", folder, all.fault);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    if (!all.files) {
        fputs("kernel_records: no recordings in " RECORDINGS " (records.tar.gz of "
              "gpu/kernels/check.sh): nothing was replayed\n",
              stderr);
        return;
    }
    ck_assert_uint_gt(all.logits, 0);
    ck_assert_uint_gt(all.rows, 0);
    ck_assert_uint_ge(all.judged, all.rows);
}
END_TEST

enum { ROWS = 3, FIRST = 5 };

/* What spoils a recording. */
enum spoilt { NOTHING, LOGIT, WEIGHT, ORDER, LINE, FAULTY };

/* ROWS tokens of glm4moe-tiny's layer 1 through one kernel on the CPU, as the harness writes it. */
static void record(const char *name, enum spoilt spoilt)
{
    const struct mr_kernel *k = kernel_find(name);
    struct mr_case *c;
    struct mr_case_layer l;
    struct mr_case_input input;
    struct gpu_inputs in;
    struct mr_kernel_router router;
    struct kernel_run run;
    struct mr_error err = {{0}};
    struct gpu_faults faults = {.holes = spoilt == FAULTY, .rows = ROWS};
    int64_t index[ROWS];
    char path[512];
    ck_assert_msg(!mr_case_load("cases/glm4moe-tiny.json", NULL, &c, &err), "%s", err.text);
    ck_assert_msg(!mr_case_get(c, 1, "decode", &l, &err), "%s", err.text);
    ck_assert_msg(!mr_case_input_make(c, &l, false, &input, &err), "%s", err.text);
    ck_assert_msg(!gpu_inputs_make(&input.layer, k, &in, &err), "%s", err.text);
    ck_assert(!gpu_router(mr_case_router(c), &router, &err));
    for (int i = 0; i < ROWS; i++) index[i] = FIRST + i;
    kernel_run(name, &router, ROWS,
               &(struct kernel_inputs){
                   .hidden = in.hidden ? (char *)in.hidden + FIRST * router.hidden * 2 : NULL,
                   .given = in.given ? (char *)in.given + FIRST * router.experts * 4 : NULL,
                   .gate = in.gate,
                   .bias = in.bias},
               &run);
    if (spoilt == LOGIT) ((uint32_t *)run.logits)[router.experts + 1] ^= 1;
    if (spoilt == WEIGHT) ((uint32_t *)run.weights)[router.top_k + 1] ^= 1;
    if (spoilt == ORDER) {
        int32_t id = run.ids[0];
        run.ids[0] = run.ids[1];
        run.ids[1] = id;
    }
    struct gpu_provenance from = {.kernel = k,
                                  .rows = ROWS,
                                  .top_k = router.top_k,
                                  .experts = router.experts,
                                  .case_name = mr_case_name(c),
                                  .arith = spoilt == LINE ? "fma" : run.line,
                                  .device = "CPU",
                                  .driver = "",
                                  .cuda = "",
                                  .seed = "",
                                  .faults = &faults};
    struct gpu_layer_rows rows = {1,
                                  "decode",
                                  ROWS,
                                  index,
                                  (unsigned char *)run.ids,
                                  (unsigned char *)run.weights,
                                  (unsigned char *)run.logits};
    gpu_observed_path(cli_at("records"), name, ROWS, path, sizeof path);
    ck_assert_msg(!gpu_observed_write(path, &from, &rows, 1, &err), "%s", err.text);
    kernel_run_free(&run);
    gpu_inputs_free(&in);
    mr_case_input_free(&input);
    mr_case_free(c);
}

static void start(void)
{
    cli_start();
    mkdir(cli_at("records"), 0777);
}

static void stop(void)
{
    static const char *const left[] = {"tiny_gemm_16", "pair",         "fused_topk",
                                       "radix_select", "merged_front", "merged_front_logits"};
    char path[512];
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        gpu_observed_path(cli_at("records"), left[i], ROWS, path, sizeof path);
        remove(path);
    }
    remove(cli_at("records"));
    cli_stop();
}

START_TEST(corroborate_recordings_of_host_code)
{
    struct recorded r = {0};
    record("tiny_gemm_16", NOTHING);
    record("pair", NOTHING);
    record("fused_topk", NOTHING);
    record("radix_select", NOTHING);
    record("merged_front", NOTHING);
    record("merged_front_logits", NOTHING);
    ck_assert_msg(recordings_check(cli_at("records"), "cases/glm4moe-tiny.json", &r), "%s",
                  r.fault);
    ck_assert_uint_eq(r.files, 6);
    ck_assert_uint_eq(r.logits, 3 * ROWS * 128);
    ck_assert_uint_eq(r.rows, 5 * ROWS);
    ck_assert_uint_eq(r.judged, 6 * ROWS);
}
END_TEST

static const struct {
    enum spoilt spoilt;
    const char *kernel, *fault;
} bad[] = {
    {LOGIT, "pair", "row 1, expert 1: logit "}, {WEIGHT, "fused_topk", "row 1, slot 1: weight "},
    {WEIGHT, "pair", "row 1, slot 1: weight "}, {ORDER, "radix_select", "row 0, slot 0: expert "},
    {LINE, "tiny_gemm_16", "fma makes it "},    {FAULTY, "pair", "holes: '1'"}};

START_TEST(reject_recordings)
{
    struct recorded r = {0};
    record(bad[_i].kernel, bad[_i].spoilt);
    ck_assert(!recordings_check(cli_at("records"), "cases/glm4moe-tiny.json", &r));
    ck_assert_msg(strstr(r.fault, bad[_i].fault), "%s", r.fault);
    r = (struct recorded){0};
    ck_assert(!recordings_check(cli_at("records"), "cases/qwen3moe-tiny.json", &r));
    ck_assert_msg(strstr(r.fault, "of case 'glm4moe-tiny'"), "%s", r.fault);
}
END_TEST

Suite *suite_kernel_records(void)
{
    Suite *s = suite_create("kernel_records");
    TCase *h200 = tcase_create("h200"), *host = tcase_create("host");
    tcase_set_timeout(h200, 120);
    tcase_add_test(h200, validate_recordings);
    tcase_set_timeout(host, 60);
    tcase_add_checked_fixture(host, start, stop);
    tcase_add_test(host, corroborate_recordings_of_host_code);
    tcase_add_loop_test(host, reject_recordings, 0, sizeof bad / sizeof *bad);
    suite_add_tcase(s, h200);
    suite_add_tcase(s, host);
    return s;
}
