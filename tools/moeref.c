/* moeref COMMAND [options]: dispatch, help, version. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../ref/moeref.h"
#include "commands.h"
#include "common.h"

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const char help_help[] = "usage: moeref help [COMMAND]\n\nShows how a command is used.\n";
static const char help_version[] = "usage: moeref version\n\nPrints the version.\n";

static const struct command {
    const char *name, *summary, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"route", "certified routing of a case: expert sets, gaps at the cut, flips", help_route,
     cmd_route},
    {"router", "how a config.json is understood, and from which keys", help_router, cmd_router},
    {"gen", "adversarial inputs by class: a case and its tensors", help_gen, cmd_gen},
    {"profiles", "how engines compute a router, side by side, with sources", help_profiles,
     cmd_profiles},
    {"replay", "recompute logits under an arithmetic and compare every bit", help_replay, cmd_replay},
    {"reveal", "the order in which a black box adds up: its tree, and the line of it", help_reveal,
     cmd_reveal},
    {"verify", "the judge: were a kernel's experts and weights right, forced by rounding, or wrong",
     help_verify, cmd_verify},
    {"identify", "which arithmetic made observed logits: every line that gives all bits",
     help_identify, cmd_identify},
    {"export", "a case written out whole, or as exact logits: what kernels are run on", help_export,
     cmd_export},
    {"help", "how a command is used", help_help, cmd_help},
    {"version", "the version", help_version, cmd_version},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct command *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(name, commands[i].name)) return &commands[i];
    return NULL;
}

static void usage(FILE *to)
{
    fputs("usage: moeref COMMAND [options]\n\n", to);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fputs("\n'moeref help COMMAND' teaches one with an example.\n"
          "Exit status: 0 fine, 1 a verdict that says wrong, 2 usage, 3 bad input, 4 out of "
          "resources.\n",
          to);
}

static int cmd_help(int argc, char **argv)
{
    if (argc > 2) die(2, "help: one command at most");
    if (argc == 2) {
        const struct command *c = find(argv[1]);
        if (!c) die(2, "help: no command '%s' (see 'moeref help')", argv[1]);
        fputs(c->help, stdout);
    } else {
        usage(stdout);
    }
    return 0;
}

static int cmd_version(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) die(2, "version: takes no arguments");
    puts("moeref " MR_VERSION);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (!strcmp(name, "--version")) name = "version";
    const struct command *c = find(name);
    if (!c) die(2, "no command '%s' (see 'moeref help')", argv[1]);
    use_better_blas(argv);
    bool help = false;
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++)
        help |= !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
    if (help) fputs(c->help, stdout);
    int status = help ? 0 : c->run(argc - 1, argv + 1);
    if (fflush(stdout) || ferror(stdout)) die(3, "standard output: cannot write");
    return status;
}
