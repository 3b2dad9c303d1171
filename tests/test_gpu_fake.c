/* moeref-gpu run, bench and probe with a device that is none (tests/gpu/fake). */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/gpu_cli.h"

Suite *suite_gpu_fake(void);

static double real(const json_t *entry, const char *key)
{
    json_t *v = json_object_get(entry, key);
    ck_assert_msg(json_is_real(v), "no figure '%s'", key);
    return json_real_value(v);
}

static const json_t *timed(const json_t *doc, const char *kernel, int rows, int nth)
{
    json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(doc, "kernels"), i, entry) {
        if (strcmp(gpu_word(entry, "kernel"), kernel) || gpu_int(entry, "rows") != rows) continue;
        if (nth-- == 0) return entry;
    }
    ck_abort_msg("no entry of %s at %d rows", kernel, rows);
    return NULL;
}

START_TEST(verify_run_on_device)
{
    gpu_fake("run", cli_at("case.json"), "--kernel", "all", "--plugin", gpu_plugin("fake"),
             "--rows", "1,2,4,9", "--json", "-");
    ck_assert_int_eq(cli_last.status, 1);
    json_t *doc = cli_json();
    ck_assert_str_eq(gpu_word(doc, "device"), "Fake");
    ck_assert_str_eq(gpu_word(doc, "driver"), "1.2");
    ck_assert_str_eq(gpu_word(doc, "cuda"), "3.4");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "fine", 4), "status"), "ok");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "fine", 9), "status"), "unsupported");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "grief", 1), "status"), "ok");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "grief", 2), "reason"), "launch: out of luck");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "grief", 4), "status"), "not_run");
    ck_assert_str_eq(gpu_word(gpu_entry(doc, "grief", 9), "status"), "ok");
    json_decref(doc);
}
END_TEST

START_TEST(verify_bench)
{
    gpu_fake("bench", cli_at("case.json"), "--kernel", "all", "--plugin", gpu_plugin("fake"),
             "--rows", "1,2,4,9", "--repeats", "5", "--json", "-");
    ck_assert_int_eq(cli_last.status, 1);
    json_t *doc = cli_json();
    ck_assert_uint_eq(json_array_size(json_object_get(doc, "kernels")), 3 * 2 + 1 + 4);
    const json_t *floor = json_object_get(doc, "floor");
    ck_assert_int_eq(gpu_int(floor, "gate_bytes"), CLI_EXPERTS * CLI_HIDDEN * 4);
    ck_assert_double_ge(real(json_object_get(floor, "read_gate"), "us_cold"), 0);
    ck_assert(json_is_false(json_object_get(timed(doc, "fine", 2, 0), "pdl")));
    ck_assert(json_is_true(json_object_get(timed(doc, "fine", 2, 1), "pdl")));
    ck_assert_double_gt(real(timed(doc, "fine", 2, 1), "us_cold"), 0);
    ck_assert_double_ge(real(timed(doc, "fine", 2, 1), "spread"), 0);
    ck_assert_int_eq(gpu_int(timed(doc, "fine", 2, 1), "launches"), 2);
    ck_assert_str_eq(gpu_word(timed(doc, "fine", 2, 1), "method"), "cupti");
    ck_assert_str_eq(gpu_word(timed(doc, "fine", 9, 0), "reason"), "serves 1 to 8 rows");
    ck_assert(json_is_null(json_object_get(timed(doc, "grief", 1, 0), "pdl")));
    ck_assert_double_gt(real(timed(doc, "grief", 1, 0), "us_warm"), 0);
    ck_assert_str_eq(gpu_word(timed(doc, "grief", 2, 0), "reason"), "launch: out of luck");
    ck_assert_str_eq(gpu_word(timed(doc, "grief", 4, 0), "status"), "not_run");
    ck_assert_double_gt(real(timed(doc, "grief", 9, 0), "us_warm"), 0);
    json_decref(doc);
    gpu_fake("bench", cli_at("case.json"), "--kernel", "fine", "--plugin", gpu_plugin("fake"),
             "--rows", "1", "--repeats", "3", "--no-cupti");
    ck_assert_int_eq(cli_last.status, 0);
    ck_assert_ptr_nonnull(strstr(cli_last.out, "device: Fake, driver 1.2, CUDA 3.4\n"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "\nread_gate"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "  events\n"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "   on "));
}
END_TEST

START_TEST(verify_probe)
{
    gpu_fake("probe", "--experts", "4", "--hidden", "8", "--json", "-");
    cli_fine();
    json_t *doc = cli_json();
    ck_assert_int_eq(gpu_int(json_object_get(doc, "about"), "multiprocessors"), 132);
    ck_assert_int_eq(gpu_int(json_object_get(doc, "about"), "clock_sm"), 1980);
    ck_assert_int_eq(gpu_int(json_object_get(doc, "floor"), "gate_bytes"), 64);
    json_decref(doc);
    gpu_fake("probe");
    cli_fine();
    ck_assert_ptr_nonnull(strstr(cli_last.out, "Fake, compute capability 9.0, 132"));
    ck_assert_ptr_nonnull(strstr(cli_last.out, "clocks as found: 1980 MHz"));
}
END_TEST

START_TEST(reject_missing_device)
{
    static const char *const command[] = {"run", "bench"};
    setenv("FAKE_DEVICE_MISSING", "the driver serves CUDA 9.0, too old", 1);
    for (int i = 0; i < 2; i++) {
        gpu_fake(command[i], cli_at("case.json"), "--kernel", "fine", "--plugin",
                 gpu_plugin("fake"), "--rows", "1");
        gpu_refused(4, "no GPU can be used", "too old");
    }
    gpu_fake("probe");
    gpu_refused(4, "no GPU can be used", "too old");
    gpu_fake("list", "--plugin", gpu_plugin("fake"));
    cli_fine();
}
END_TEST

Suite *suite_gpu_fake(void)
{
    Suite *s = suite_create("gpu_fake");
    TCase *c = tcase_create("device");
    tcase_add_checked_fixture(c, cli_start, cli_stop);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, verify_run_on_device);
    tcase_add_test(c, verify_bench);
    tcase_add_test(c, verify_probe);
    tcase_add_test(c, reject_missing_device);
    suite_add_tcase(s, c);
    return s;
}
