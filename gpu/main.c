/* moeref-gpu COMMAND [options]: dispatch, help, version; and the children that it starts. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../ref/moeref.h"
#include "../tools/common.h"
#include "commands.h"
#include "device.h"
#include "request.h"
#include "worker.h"

static const struct command {
    const char *name, *summary, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"list", "the kernels there are: built in, and of plugins", gpu_help_list, gpu_cmd_list},
    {"run", "runs kernels on a case and judges what they gave", gpu_help_run, gpu_cmd_run},
    {"bench", "times kernels, with the floors of the device", gpu_help_bench, gpu_cmd_bench},
    {"probe", "the device as found, and its floors", gpu_help_probe, gpu_cmd_probe},
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
    fputs("usage: moeref-gpu COMMAND [options]\n\n", to);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "  %-8s %s\n", "help", "how a command is used");
    fprintf(to, "  %-8s %s\n", "version", "the version");
    fputs("\n'moeref-gpu help COMMAND' teaches one with an example.\n"
          "Exit status: 0 fine, 1 a verdict that says wrong or not run, 2 usage, 3 bad input, 4 out "
          "of resources, or no GPU.\n", to);
    if (!gpu_built_with_cuda())
        fputs("This one was built without CUDA (nvcc was missing): plugins for the CPU alone.\n", to);
}

static int help(int argc, char **argv)
{
    if (argc > 2) die(2, "help: one command at most");
    if (argc == 1) {
        usage(stdout);
        return 0;
    }
    const struct command *c = find(argv[1]);
    if (!c) die(2, "help: no command '%s' (see 'moeref-gpu help')", argv[1]);
    fputs(c->help, stdout);
    return 0;
}

static int version(int argc)
{
    if (argc > 1) die(2, "version: takes no arguments");
    printf("moeref-gpu " MR_VERSION "%s%s\n", gpu_built_with_cuda() ? ", CUDA code for " : "",
           gpu_built_with_cuda() ? gpu_built_for() : ", without CUDA");
    return 0;
}

static int dispatch(int argc, char **argv)
{
    const char *name = argv[1];
    if (!strcmp(name, "--worker")) return gpu_worker(argc - 2, argv + 2);
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help"))
        return help(argc - 1, argv + 1);
    if (!strcmp(name, "--version") || !strcmp(name, "version")) return version(argc - 1);
    const struct command *c = find(name);
    if (!c) die(2, "no command '%s' (see 'moeref-gpu help')", name);
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(c->help, stdout), 0;
    if (c->run == gpu_cmd_run) use_better_blas(argv);
    return c->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    program_name = "moeref-gpu";
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    int status = dispatch(argc, argv);
    if (fflush(stdout) || ferror(stdout)) die(3, "standard output: cannot write");
    return status;
}
