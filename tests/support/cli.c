#include "cli.h"

#include <check.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_SECONDS = 60 };

struct cli_result cli_last;

static const char *program(void)
{
    static char path[PATH_MAX + 16];
    const char *given = getenv("MOEREF_BIN");
    if (given) return given;
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(n, 0);
    self[n] = '\0';
    snprintf(path, sizeof path, "%s/../moeref", dirname(self));
    return path;
}

/* The child: no function here but those that may be called after fork. */
static _Noreturn void child(const char *path, char *const *argv, const struct cli_setup *setup,
                            int out, int err)
{
    int in = open("/dev/null", O_RDONLY);
    if (setup && setup->out_path) out = open(setup->out_path, O_WRONLY);
    if (setup && setup->file_limit) {
        struct rlimit limit = {setup->file_limit, setup->file_limit};
        signal(SIGXFSZ, SIG_IGN); /* write fails with EFBIG instead */
        if (setrlimit(RLIMIT_FSIZE, &limit)) _exit(126);
    }
    if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
    execv(path, argv);
    _exit(127);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads one pipe's share; false at its end. */
static bool take(int fd, char **text, size_t *bytes)
{
    *text = realloc(*text, *bytes + 65537);
    ck_assert_ptr_nonnull(*text);
    ssize_t n = read(fd, *text + *bytes, 65536);
    if (n > 0) *bytes += (size_t)n;
    (*text)[*bytes] = '\0';
    return n > 0;
}

static void collect(pid_t pid, int out, int err)
{
    struct pollfd fds[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
    double end = now() + LIMIT_SECONDS;
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        double left = end - now();
        if (left <= 0 || poll(fds, 2, (int)(1000 * left) + 1) == 0) {
            cli_last.late = true;
            kill(pid, SIGKILL);
            return;
        }
        if (fds[0].revents && !take(out, &cli_last.out, &cli_last.out_bytes)) fds[0].fd = -1;
        if (fds[1].revents && !take(err, &cli_last.err, &cli_last.err_bytes)) fds[1].fd = -1;
    }
}

void cli_run(const struct cli_setup *setup, const char *const arguments[])
{
    const char *argv[512] = {program()}; /* a recording an argument */
    size_t count = 1;
    for (; arguments[count - 1]; count++) {
        ck_assert_uint_lt(count, sizeof argv / sizeof *argv - 1);
        argv[count] = arguments[count - 1];
    }
    free(cli_last.out);
    free(cli_last.err);
    cli_last = (struct cli_result){.status = -1, .out = strdup(""), .err = strdup("")};
    int out[2], err[2], status;
    ck_assert_int_eq(pipe2(out, O_CLOEXEC) | pipe2(err, O_CLOEXEC), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) child(argv[0], (char *const *)argv, setup, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    collect(pid, out[0], err[0]);
    close(out[0]);
    close(err[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status)) cli_last.status = WEXITSTATUS(status);
    else cli_last.signal = WTERMSIG(status);
    ck_assert_msg(cli_last.status != 127, "%s cannot be run: set MOEREF_BIN", argv[0]);
    ck_assert_msg(!cli_last.late, "%s %s: still running after %d s", argv[0],
                  argv[1] ? argv[1] : "", LIMIT_SECONDS);
}

void cli_fine(void)
{
    ck_assert_msg(cli_last.status == 0 && cli_last.err_bytes == 0, "status %d, signal %d: %s",
                  cli_last.status, cli_last.signal, cli_last.err);
}

json_t *cli_json(void)
{
    json_error_t e;
    json_t *doc = json_loadb(cli_last.out, cli_last.out_bytes, JSON_REJECT_DUPLICATES, &e);
    ck_assert_msg(doc != NULL, "standard output, line %d: %s", e.line, e.text);
    return doc;
}

json_t *cli_json_file(const char *path)
{
    json_error_t e;
    json_t *doc = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    ck_assert_msg(doc != NULL, "%s, line %d: %s", path, e.line, e.text);
    return doc;
}

void cli_keys(const json_t *value, const char *keys)
{
    size_t count = 0;
    for (const char *p = keys; *p; count++) {
        size_t n = strcspn(p, " ");
        char key[64] = {0};
        ck_assert_uint_lt(n, sizeof key);
        memcpy(key, p, n);
        ck_assert_msg(json_object_get(value, key) != NULL, "no key '%s'", key);
        p += n + strspn(p + n, " ");
    }
    ck_assert_msg(json_object_size(value) == count, "%zu keys, expected the %zu of '%s'",
                  json_object_size(value), count, keys);
}
