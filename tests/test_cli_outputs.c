/* Outputs that cannot be written: one clear line, exit status 3, and what was there stays. */
#include <check.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "support/cli.h"

Suite *suite_cli_outputs(void);

#define TOY "cases/toy.json"

static const char *const outputs[] = {"--json", "--csv", "--tokens"};

/* What an output cannot become. No test names a true device as an output: a program that fails here
 * may replace it, and tests may run as root. */
START_TEST(reject_outputs)
{
    ck_assert_int_eq(mkfifo(cli_at("fifo"), 0666), 0);
    ck_assert_int_eq(mkdir(cli_at("folder"), 0777), 0);
    bool device = mknod(cli_at("full"), S_IFCHR | 0666, makedev(1, 7)) == 0; /* root may */
    const char *const bad[][2] = {{"none/x", "cannot create"}, {"fifo", "FIFO"},
                                  {"folder", "folder"}, {"case.json/x", "cannot create"},
                                  {"full", "character device"}};
    cli_remember();
    for (size_t i = 0; i < (device ? 5 : 4); i++) {
        for (size_t o = 0; o < 3; o++) {
            cli("route", cli_at("case.json"), outputs[o], cli_at(bad[i][0]));
            cli_refused(3, cli_at(bad[i][0]), bad[i][1]);
        }
        cli("router", cli_at("config.json"), "--json", cli_at(bad[i][0]));
        cli_refused(3, cli_at(bad[i][0]), bad[i][1]);
    }
    struct stat st;
    ck_assert(stat(cli_at("fifo"), &st) == 0 && S_ISFIFO(st.st_mode));
    ck_assert(!device || (stat(cli_at("full"), &st) == 0 && S_ISCHR(st.st_mode)));
    cli("route", cli_at("case.json"), "--csv", cli_at("x"), "--json", cli_at("x"));
    cli_refused(2, "--csv and --json", cli_at("x"));
}
END_TEST

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

/* A disk that is full, by a limit on the size of files: what was there before stays. */
START_TEST(reject_full_disk)
{
    if (UNDER_TSAN) return; /* its run-time keeps its own memory in files, and dies of the limit */
    cli_put("x", "before", 6);
    cli_remember();
    for (size_t o = 0; o < 3; o++) {
        /* Not less: LLVM's OpenMP keeps a kilobyte of shared memory in a file. */
        cli_run(&(struct cli_setup){.file_limit = 2048},
                (const char *const[]){"route", "cases/glm4moe-tiny.json", "--layers", "1",
                                      outputs[o], cli_at("x"), NULL});
        cli_refused(3, cli_at("x"), "too large");
        size_t n;
        char *text = cli_get(cli_at("x"), &n);
        ck_assert_str_eq(text, "before");
        free(text);
    }
}
END_TEST

/* A link stays a link, and the file behind it is replaced. */
START_TEST(verify_output_link)
{
    cli_put("real", "before", 6);
    ck_assert_int_eq(symlink("real", cli_at("link")), 0);
    for (size_t o = 0; o < 3; o++) {
        struct stat st;
        cli("route", cli_at("case.json"), "-q", outputs[o], cli_at("link"));
        cli_fine();
        ck_assert(lstat(cli_at("link"), &st) == 0 && S_ISLNK(st.st_mode));
        ck_assert(stat(cli_at("real"), &st) == 0 && st.st_size > 100);
    }
}
END_TEST

START_TEST(reject_full_stdout)
{
    struct stat st;
    if (stat("/dev/full", &st) || !S_ISCHR(st.st_mode)) return;
    const struct cli_setup full = {.out_path = "/dev/full"};
    static const char *const runs[][5] = {
        {"route", TOY}, {"route", TOY, "--json", "-"}, {"route", TOY, "--csv", "-"}, {"help"},
        {"help", "route"}, {"version"}, {"router", "data/captures/glm4moe-tiny/config.json"},
        {"router", "data/captures/glm4moe-tiny/config.json", "--json=-"}, {"route", "--help"}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        cli_run(&full, runs[i]);
        cli_refused(3, "standard output", NULL);
    }
}
END_TEST

Suite *suite_cli_outputs(void)
{
    Suite *suite = suite_create("cli_outputs");
    TCase *tc = tcase_create("cli_outputs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, cli_start, cli_stop);
    tcase_add_test(tc, reject_outputs);
    tcase_add_test(tc, reject_full_disk);
    tcase_add_test(tc, verify_output_link);
    tcase_add_test(tc, reject_full_stdout);
    suite_add_tcase(suite, tc);
    return suite;
}
