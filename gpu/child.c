#include "child.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* How long a killed child is waited for: a driver may have to stop a kernel of its first. */
enum { KILLED_SECONDS = 30 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct reader {
    void (*line)(void *context, int fields, char *const field[]);
    void *context;
    char text[8192];
    size_t bytes;
    bool ended; /* "end" has come */
};

static void split(struct reader *r, char *line)
{
    char *field[GPU_FIELDS + 1];
    int n = 0;
    for (char *at = line; n < GPU_FIELDS && at;) {
        char *tab = strchr(at, '\t');
        if (tab) *tab = '\0';
        field[n++] = at;
        at = tab ? tab + 1 : NULL;
    }
    field[n] = NULL;
    if (!strcmp(field[0], "end")) r->ended = true;
    else r->line(r->context, n, field);
}

/* A line that does not fit is a child gone mad: it is dropped. */
static void feed(struct reader *r, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            r->text[r->bytes] = '\0';
            if (r->bytes) split(r, r->text);
            r->bytes = 0;
        } else if (r->bytes < sizeof r->text - 1) {
            r->text[r->bytes++] = bytes[i];
        }
    }
}

/* Reads until the pipe ends or nothing has come for too long; false if so. A child that ended but
 * left somebody holding the pipe is given up at the same limit. */
static bool follow(struct reader *r, int fd, double limit)
{
    double end = now() + limit;
    char bytes[4096];
    for (;;) {
        struct pollfd p = {fd, POLLIN, 0};
        double left = end - now();
        if (left <= 0) return false;
        int ready = poll(&p, 1, left > 1e6 ? 1000000000 : (int)(1e3 * left) + 1);
        if (ready < 0 && errno != EINTR) return false;
        if (ready <= 0) continue;
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return true;
        feed(r, bytes, (size_t)n);
        end = now() + limit;
    }
}

/* Waits for the child to be gone; false if it is not within that time. */
static bool reap(pid_t pid, double limit, int *status)
{
    double end = now() + limit;
    for (;;) {
        pid_t gone = waitpid(pid, status, WNOHANG);
        if (gone == pid || (gone < 0 && errno != EINTR)) return true;
        if (now() > end) return false;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
}

static int spawn(char *const argv[], int fd, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    posix_spawn_file_actions_adddup2(&actions, fd, GPU_REPORT);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    int failed = posix_spawn(pid, "/proc/self/exe", &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

bool gpu_child_run(char *const argv[], double limit,
                   void (*line)(void *context, int fields, char *const field[]), void *context,
                   char *reason, size_t size)
{
    struct reader r = {.line = line, .context = context};
    int ends[2], status = 0;
    pid_t pid;
    reason[0] = '\0';
    if (pipe2(ends, O_CLOEXEC)) {
        snprintf(reason, size, "cannot start a child: %s", strerror(errno));
        return false;
    }
    /* dup2 of a descriptor to itself would leave it closed in the child. */
    int fd = ends[1] == GPU_REPORT ? fcntl(ends[1], F_DUPFD_CLOEXEC, GPU_REPORT + 1) : ends[1];
    int failed = spawn(argv, fd, &pid);
    close(ends[1]);
    if (fd != ends[1]) close(fd);
    if (failed) {
        close(ends[0]);
        snprintf(reason, size, "cannot start a child: %s", strerror(failed));
        return false;
    }
    bool in_time = follow(&r, ends[0], limit);
    close(ends[0]);
    if (in_time) in_time = reap(pid, limit, &status); /* it may have closed the pipe and gone on */
    kill(-pid, SIGKILL); /* it, or what it started */
    if (!in_time && !reap(pid, KILLED_SECONDS, &status))
        snprintf(reason, size, "still running after %g s, and cannot be killed", limit);
    else if (!in_time) snprintf(reason, size, "still running after %g s: killed", limit);
    else if (WIFSIGNALED(status))
        snprintf(reason, size, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) || !r.ended)
        snprintf(reason, size, "ended by itself with status %d", WEXITSTATUS(status));
    else return true;
    return false;
}

void gpu_child_begin(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fcntl(GPU_REPORT, F_SETFD, FD_CLOEXEC);
}

static void say(const char *text, size_t n)
{
    while (n) {
        ssize_t wrote = write(GPU_REPORT, text, n);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) _exit(5); /* nobody listens */
        text += wrote;
        n -= (size_t)wrote;
    }
}

void gpu_child_say(const char *field, ...)
{
    char text[4096];
    size_t n = 0;
    va_list rest;
    va_start(rest, field);
    for (const char *f = field; f; f = va_arg(rest, const char *)) {
        if (n && n < sizeof text - 2) text[n++] = '\t';
        for (; *f && n < sizeof text - 2; f++)
            text[n++] = iscntrl((unsigned char)*f) ? '?' : *f;
    }
    va_end(rest);
    text[n++] = '\n';
    say(text, n);
}

void gpu_child_say_rows(const char *word, int rows, const char *reason)
{
    char number[16];
    snprintf(number, sizeof number, "%d", rows);
    gpu_child_say(word, number, reason, NULL);
}
