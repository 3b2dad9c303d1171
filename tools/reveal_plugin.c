/* Runs a plugin in a child: one that crashes, ends or hangs is an error with a message. Rows go
 * through shared memory, a byte each way says when. */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../ref/arith/reveal_plugin.h"
#include "common.h"
#include "reveal_run.h"

struct shared {
    size_t count, terms;
    int status; /* of the last call, or of loading */
    char text[512];
    float values[]; /* rows, then results */
};

struct plugin {
    pid_t child;
    int ask, answer; /* pipes */
    int seconds;
    size_t values, bytes;
    struct shared *shared;
    const char *path, *symbol;
};

static void load(struct shared *shared, const char *path, const char *symbol,
                 mr_reveal_plugin **function)
{
    /* A name without '/' is a file here, not one of the system's libraries. */
    char here[PATH_MAX];
    snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *library = dlopen(here, RTLD_NOW | RTLD_LOCAL);
    /* The way that POSIX gives for functions. */
    if (library) *(void **)function = dlsym(library, symbol);
    if (*function) return;
    const char *why = dlerror();
    snprintf(shared->text, sizeof shared->text, "%s", why ? why : "no such symbol");
    shared->status = 1;
}

/* The child. Its standard output is the error output: ours is for the report. */
static _Noreturn void serve(const struct plugin *p, int ask, int answer)
{
    const struct rlimit none = {0, 0};
    mr_reveal_plugin *function = NULL;
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    load(p->shared, p->path, p->symbol, &function);
    if (write(answer, "", 1) != 1 || !function) _exit(0);
    while (read(ask, &byte, 1) == 1) {
        struct shared *s = p->shared;
        s->status = function(s->values, s->count, s->terms, s->values + s->count * s->terms);
        if (write(answer, "", 1) != 1) break;
    }
    _exit(0);
}

/* Waits for the byte that says done; else says what became of the child, and ends it. */
static enum mr_status wait_answer(struct plugin *p, struct mr_error *err)
{
    struct pollfd poll_answer = {.fd = p->answer, .events = POLLIN};
    char byte;
    int ready;
    do ready = poll(&poll_answer, 1, p->seconds * 1000);
    while (ready < 0 && errno == EINTR);
    if (ready > 0 && read(p->answer, &byte, 1) == 1) return MR_OK;
    int status = 0;
    if (ready == 0) kill(p->child, SIGKILL);
    waitpid(p->child, &status, 0);
    p->child = 0;
    if (ready == 0)
        return mr_fail(err, MR_ERR_VALUE, "%s: %s did not return within %d s (--seconds)", p->path,
                       p->symbol, p->seconds);
    if (WIFSIGNALED(status))
        return mr_fail(err, MR_ERR_VALUE, "%s: %s crashed: %s", p->path, p->symbol,
                       strsignal(WTERMSIG(status)));
    return mr_fail(err, MR_ERR_VALUE, "%s: %s ended its process with status %d", p->path, p->symbol,
                   WEXITSTATUS(status));
}

struct plugin *plugin_open(const char *path, const char *symbol, size_t values, size_t rows,
                           int seconds)
{
    struct plugin *p = need(1, sizeof *p);
    int ask[2], answer[2];
    *p = (struct plugin){.seconds = seconds, .path = path, .symbol = symbol};
    p->values = values + rows;
    p->bytes = sizeof *p->shared + p->values * sizeof(float);
    p->shared = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p->shared == MAP_FAILED || pipe(ask) || pipe(answer)) die(4, "reveal: %s", strerror(errno));
    fflush(NULL);
    p->child = fork();
    if (p->child < 0) die(4, "reveal: %s", strerror(errno));
    if (p->child == 0) {
        close(ask[1]);
        close(answer[0]);
        serve(p, ask[0], answer[1]);
    }
    close(ask[0]);
    close(answer[1]);
    p->ask = ask[1];
    p->answer = answer[0];
    signal(SIGPIPE, SIG_IGN);
    struct mr_error err;
    enum mr_status status = wait_answer(p, &err);
    if (status) die_of(status, &err);
    if (p->shared->status) die(3, "%s", p->shared->text);
    return p;
}

enum mr_status plugin_sum(void *context, const float *rows, size_t count, size_t terms, float *out,
                          struct mr_error *err)
{
    struct plugin *p = context;
    struct shared *s = p->shared;
    if (!p->child) return mr_fail(err, MR_ERR_VALUE, "%s has ended", p->path);
    if (count * terms + count > p->values)
        return mr_fail(err, MR_ERR_MEMORY, "a call of %zu rows of %zu terms", count, terms);
    s->count = count;
    s->terms = terms;
    memcpy(s->values, rows, count * terms * sizeof *rows);
    /* A result that is not written is no number. */
    for (size_t i = 0; i < count; i++) s->values[count * terms + i] = NAN;
    if (write(p->ask, "", 1) != 1 && errno != EPIPE)
        return mr_fail(err, MR_ERR_IO, "%s: %s", p->path, strerror(errno));
    enum mr_status status = wait_answer(p, err);
    if (status) return status;
    if (s->status)
        return mr_fail(err, MR_ERR_VALUE, "%s: %s returned %d", p->path, p->symbol, s->status);
    memcpy(out, s->values + count * terms, count * sizeof *out);
    return MR_OK;
}

void plugin_close(struct plugin *p)
{
    close(p->ask);
    close(p->answer);
    if (p->child) {
        kill(p->child, SIGKILL);
        waitpid(p->child, NULL, 0);
    }
    munmap(p->shared, p->bytes);
    free(p);
}
