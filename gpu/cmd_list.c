/* moeref-gpu list: the kernels, without touching a device. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "../tools/common.h"
#include "commands.h"
#include "device.h"
#include "registry.h"

const char gpu_help_list[] =
    "usage: moeref-gpu list [--plugin F]... [-v]\n"
    "\n"
    "One line a kernel: family, name, row counts served, what it takes and gives, what it is. -v adds\n"
    "what it promises.\n"
    "\n"
    "example: moeref-gpu list --plugin build/tests/gpu/right.so\n";

static void print_gives(const struct mr_kernel *k)
{
    static const char *const name[] = {NULL, "ids", NULL, "counts", "sorted"};
    bool any = false;
    if (k->hidden_types)
        printf("%s x %s", gpu_type_name(k->hidden_types), gpu_type_name(k->gate_types));
    else printf("%s logits", gpu_type_name(k->given_types));
    fputs(" -> ", stdout);
    for (int i = 0; i < 5; i++) {
        if (!(k->gives & 1 << i)) continue;
        if (any) putchar('+');
        any = true;
        if (i == 0) printf("%s logits", gpu_type_name(k->logits_type));
        else if (i == 2) printf("%s weights", gpu_type_name(k->weights_type));
        else fputs(name[i], stdout);
    }
}

static void print_promises(const struct mr_kernel *k)
{
    static const char *const name[] = {"deterministic", "batch-invariant", "ordered", NULL, "pdl",
                                       "stable"};
    const char *before = "; promises ";
    for (int i = 0; i < 6; i++) {
        if (!name[i] || !(k->promises & 1 << i)) continue;
        printf("%s%s", before, name[i]);
        before = ", ";
    }
}

static void print_kernel(const struct mr_kernel *k, bool verbose)
{
    char rows[48];
    if (k->max_rows) snprintf(rows, sizeof rows, "%d-%d", k->min_rows, k->max_rows);
    else snprintf(rows, sizeof rows, "%d-", k->min_rows);
    printf("%-14s %-24s %-8s %s  ", k->family, k->name, rows,
           k->memory == MR_MEMORY_HOST ? "cpu" : "gpu");
    print_gives(k);
    printf("  %s", k->summary ? k->summary : "");
    if (verbose) print_promises(k);
    putchar('\n');
}

int gpu_cmd_list(int argc, char **argv)
{
    static const struct option options[] = {{"plugin", required_argument, NULL, 256}, {0}};
    struct mr_error err = {{0}};
    bool verbose = false;
    int c;
    enum mr_status status = gpu_registry_check(&err);
    opterr = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, ":v", options, NULL)) != -1) {
        if (c == 'v') verbose = true;
        else if (c != 256) bad_option("list", c, argv, optind);
        else if (!status) status = gpu_plugin_load(optarg, &err);
    }
    if (status) die_of(status, &err);
    if (optind != argc) die(2, "list: takes no arguments");
    for (size_t i = 0; i < gpu_kernel_count(); i++) print_kernel(gpu_kernel_at(i), verbose);
    if (!gpu_built_with_cuda())
        fputs("moeref-gpu: built without CUDA (nvcc was missing): no kernel is built in\n", stderr);
    return 0;
}
