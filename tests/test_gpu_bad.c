/* Bad arguments, plugins and cases of moeref-gpu, and machines without a GPU: one clear line,
 * and the exit status of DESIGN section 4. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/gpu_cli.h"

Suite *suite_gpu_bad(void);

#define TOY "cases/toy.json"
#define GLM "cases/glm4moe-tiny.json"

START_TEST(reject_arguments)
{
    const char *right = gpu_plugin("right");
    const struct {
        const char *arguments[10];
        int status;
        const char *words[2];
    } bad[] = {
        {{"rune"}, 2, {"no command 'rune'", "moeref-gpu help"}},
        {{"help", "rune"}, 2, {"no command 'rune'", NULL}},
        {{"help", "run", "run"}, 2, {"one command", NULL}},
        {{"version", "1"}, 2, {"no arguments", NULL}},
        {{"list", "x"}, 2, {"no arguments", NULL}},
        {{"list", "--plugin"}, 2, {"--plugin needs a value", "moeref-gpu help list"}},
        {{"list", "--kernel", "x"}, 2, {"--kernel", "help list"}},
        {{"run"}, 2, {"one CASE", "moeref-gpu help run"}},
        {{"run", TOY}, 2, {"--kernel", "moeref-gpu list"}},
        {{"run", TOY, GLM, "--kernel", "all"}, 2, {"one CASE", NULL}},
        {{"run", TOY, "--kernel", "a", "--kernel", "b"}, 2, {"--kernel twice", NULL}},
        {{"run", TOY, "--kernel", "all", "--repeats", "9"}, 2, {"--repeats", "help run"}},
        {{"run", TOY, "--kernel", "all", "--rows", ""}, 2, {"--rows", "axis"}},
        {{"run", TOY, "--kernel", "all", "--rows", "1,"}, 2, {"--rows 1,", NULL}},
        {{"run", TOY, "--kernel", "all", "--rows", "0"}, 2, {"1 to 65536", "at '0'"}},
        {{"run", TOY, "--kernel", "all", "--rows", "1,x"}, 2, {"at 'x'", NULL}},
        {{"run", TOY, "--kernel", "all", "--rows", "4,2,4"}, 2, {"4 twice", NULL}},
        {{"run", TOY, "--kernel", "all", "--rows", "99999999999999999999"}, 2, {"65536", NULL}},
        {{"run", TOY, "--kernel", "all", "--timeout", "0"}, 2, {"--timeout 0", NULL}},
        {{"run", TOY, "--kernel", "all", "--launches", "0"}, 2, {"--launches 0", NULL}},
        {{"run", TOY, "--kernel", "all", "--from", "ids"}, 2, {"--from ids", NULL}},
        {{"run", TOY, "--kernel", "all", "--layers", "x"}, 2, {"--layers x", NULL}},
        {{"run", TOY, "--kernel", "all", "--out", ""}, 2, {"--out", NULL}},
        {{"run", TOY, "--kernel", "all", "--json", "/nowhere/f"}, 3, {"/nowhere/f", NULL}},
        {{"run", TOY, "--kernel", "all"}, 4, {"no kernels", "nvcc was missing"}},
        {{"run", TOY, "--kernel", "cublas", "--plugin", right}, 2, {"no such kernel", "topk_bf16"}},
        {{"run", TOY, "--kernel", "topk", "--against", "pair", "--plugin", right}, 2,
         {"--against pair: no such kernel", "topk_bf16"}},
        {{"run", TOY, "--kernel", "plain_8", "--plugin", right, "--rows", "4,9"}, 2,
         {"--rows 9", "plain_8 serves 1 to 8 rows"}},
        {{"run", TOY, "--kernel", "topk", "--plugin", right, "--seed", "3"}, 2,
         {"--seed", "generates nothing"}},
        {{"run", TOY, "--kernel", "topk", "--plugin", right, "--phase", "p"}, 3,
         {"no phase 'p'", NULL}},
        {{"run", TOY, "--kernel", "topk", "--plugin", right, "--layers", "7"}, 3,
         {"no layer 7", NULL}},
        {{"run", "nowhere.json", "--kernel", "topk", "--plugin", right}, 3, {"nowhere.json", NULL}},
        {{"run", TOY, "--kernel", "topk", "--plugin", right, "--out", "/nowhere/there"}, 3,
         {"--out /nowhere/there", NULL}},
        {{"run", TOY, "--kernel", "topk", "--plugin", right, "--out", TOY}, 3,
         {"expected a folder", NULL}},
        {{"run", "cases/glm-5.3-flash.json", "--from", "logits", "--kernel", "topk", "--plugin",
          right}, 3, {"no logits to start from", NULL}},
        {{"bench", TOY, "--kernel", "all", "--out", "x"}, 2, {"--out", "help bench"}},
        {{"bench", TOY, "--kernel", "topk", "--plugin", right}, 2, {"topk runs on the CPU", NULL}},
        {{"bench", TOY, "--kernel", "all", "--repeats", "2"}, 2, {"--repeats 2", NULL}},
        {{"probe", "x"}, 2, {"no arguments", NULL}},
        {{"probe", "--experts", "0"}, 2, {"--experts 0", NULL}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gpu_run("moeref-gpu", bad[i].arguments);
        gpu_refused(bad[i].status, bad[i].words[0], bad[i].words[1]);
    }
    gpu("");
    gpu_refused(2, "no command ''", NULL);
}
END_TEST

START_TEST(reject_plugins)
{
    static const struct {
        const char *plugin, *words[2];
    } bad[] = {
        {"other_abi", {"ABI version 2", "this harness has version 1"}},
        {"other_kernel_abi", {"a kernel of ABI version 2", "this harness has version 1"}},
        {"no_plugin", {"exports no moeref_plugin", NULL}},
        {"contradiction", {"kernel contradiction", "no ids"}},
        {"nowhere", {"cannot load", "No such file"}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gpu("list", "--plugin", gpu_plugin(bad[i].plugin));
        gpu_refused(3, bad[i].words[0], bad[i].words[1]);
        gpu("run", TOY, "--kernel", "all", "--plugin", gpu_plugin(bad[i].plugin));
        gpu_refused(3, bad[i].words[0], bad[i].words[1]);
    }
    gpu("list", "--plugin", gpu_plugin("right"), "--plugin", gpu_plugin("right"));
    gpu_refused(3, "there is a kernel", "already");
}
END_TEST

/* This moeref-gpu has no CUDA, as a machine has no GPU. */
START_TEST(reject_without_gpu)
{
    const char *device = gpu_plugin("device");
    gpu("run", GLM, "--kernel", "nothing", "--plugin", device, "--rows", "2");
    gpu_refused(4, "no GPU can be used", "built without CUDA");
    gpu("bench", GLM, "--kernel", "nothing", "--plugin", device, "--rows", "2");
    gpu_refused(4, "no GPU can be used", NULL);
    gpu("probe");
    gpu_refused(4, "no GPU can be used", NULL);
    gpu("run", GLM, "--kernel", "nothing", "--plugin", device, "--rows", "1,2");
    gpu_refused(2, "--rows 1", "serves 2 to 64 rows");
}
END_TEST

START_TEST(verify_list_and_help)
{
    gpu("list", "--plugin", gpu_plugin("right"), "--plugin", gpu_plugin("device"));
    ck_assert_int_eq(cli_last.status, 0);
    ck_assert_ptr_nonnull(strstr(cli_last.err, "built without CUDA"));
    static const char *const first[] = {"nothing ", "plain ", "plain ", "plain ", "plain ",
                                        "plain_topk ", "plain_topk "};
    const char *line = cli_last.out;
    for (int i = 0; i < 7; i++) {
        ck_assert_msg(line && !strncmp(line, first[i], strlen(first[i])), "%s", line);
        line = strchr(line, '\n') + 1;
    }
    ck_assert_str_eq(line, "");
    static const char *const command[] = {"list", "run", "bench", "probe"};
    for (int i = 0; i < 4; i++) {
        gpu("help", command[i]);
        cli_fine();
        ck_assert_ptr_nonnull(strstr(cli_last.out, "example: moeref-gpu "));
        char *kept = strdup(cli_last.out);
        gpu(command[i], "--help");
        cli_fine();
        ck_assert_str_eq(cli_last.out, kept);
        free(kept);
    }
    gpu("version");
    cli_fine();
}
END_TEST

Suite *suite_gpu_bad(void)
{
    Suite *s = suite_create("gpu_bad");
    TCase *c = tcase_create("lines");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, reject_arguments);
    tcase_add_test(c, reject_plugins);
    tcase_add_test(c, reject_without_gpu);
    tcase_add_test(c, verify_list_and_help);
    suite_add_tcase(s, c);
    return s;
}
