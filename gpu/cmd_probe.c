/* moeref-gpu probe: the device as it is found, and the floors that no kernel beats on it. */
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/io/report.h"
#include "../tools/common.h"
#include "child.h"
#include "commands.h"
#include "device.h"
#include "results.h"

const char gpu_help_probe[] =
    "usage: moeref-gpu probe [--experts N] [--hidden N] [--no-cupti] [--json F]\n"
    "\n"
    "Prints the device, its driver, its clocks as found, and floors in microseconds: an empty kernel\n"
    "of 1 and of 288 blocks, and a kernel that only reads a bf16 gate weight of that shape (default\n"
    "288 x 4096), cold and warm.\n"
    "\n"
    "example: moeref-gpu probe --json -\n";

enum { OPT_EXPERTS = 256, OPT_HIDDEN, OPT_NO_CUPTI, OPT_JSON };

struct probe {
    struct gpu_results r;
    bool found;
    char capability[32];
    long long multiprocessors, l2, memory, clock_sm, clock_memory, clock_most;
    char why[GPU_REASON];
};

static void take_line(void *context, int fields, char *const field[])
{
    struct probe *p = context;
    if (fields >= 2 && (!strcmp(field[0], "nodevice") || !strcmp(field[0], "failed")))
        snprintf(p->why, sizeof p->why, "%s", field[1]);
    if (fields >= 4 && !strcmp(field[0], "device")) {
        snprintf(p->r.device, sizeof p->r.device, "%s", field[1]);
        snprintf(p->r.driver, sizeof p->r.driver, "%s", field[2]);
        snprintf(p->r.cuda, sizeof p->r.cuda, "%s", field[3]);
    }
    if (fields >= 8 && !strcmp(field[0], "about")) {
        p->found = true;
        snprintf(p->capability, sizeof p->capability, "%s", field[1]);
        p->multiprocessors = atoll(field[2]);
        p->l2 = atoll(field[3]);
        p->memory = atoll(field[4]);
        p->clock_sm = atoll(field[5]);
        p->clock_memory = atoll(field[6]);
        p->clock_most = atoll(field[7]);
    }
    gpu_results_floor(&p->r, fields, field);
}

static void print_probe(const struct probe *p)
{
    printf("%s, compute capability %s, %lld multiprocessors\n", p->r.device, p->capability,
           p->multiprocessors);
    printf("driver %s, CUDA %s; code for %s\n", p->r.driver, p->r.cuda, gpu_built_for());
    printf("memory %.1f GiB, L2 %.0f MiB\n", (double)p->memory / (1 << 30),
           (double)p->l2 / (1 << 20));
    if (p->clock_sm)
        printf("clocks as found: %lld MHz of %lld, memory %lld MHz\n", p->clock_sm, p->clock_most,
               p->clock_memory);
    else puts("clocks: not told (no NVML)");
    printf("gate weight: %zu bytes\n", p->r.gate_bytes);
    gpu_print_bench(&(struct gpu_results){.floor_count = p->r.floor_count,
                                          .floor = {p->r.floor[0], p->r.floor[1], p->r.floor[2]}},
                    stdout);
}

static json_t *probe_json(const struct probe *p)
{
    json_t *o = gpu_results_json(&p->r);
    json_t *about = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "capability", p->capability,
                              "multiprocessors", (json_int_t)p->multiprocessors, "l2_bytes",
                              (json_int_t)p->l2, "memory_bytes", (json_int_t)p->memory, "clock_sm",
                              (json_int_t)p->clock_sm, "clock_memory", (json_int_t)p->clock_memory,
                              "clock_sm_most", (json_int_t)p->clock_most);
    json_object_set_new(o, "about", about);
    return o;
}

static void write_json(const struct probe *p, const char *path)
{
    struct mr_error err = {{0}};
    json_t *doc = probe_json(p);
    enum mr_status status = mr_json_write(doc, path, &err);
    json_decref(doc);
    if (status) die_of(status, &err);
}

int gpu_cmd_probe(int argc, char **argv)
{
    static const struct option options[] = {{"experts", required_argument, NULL, OPT_EXPERTS},
                                            {"hidden", required_argument, NULL, OPT_HIDDEN},
                                            {"no-cupti", no_argument, NULL, OPT_NO_CUPTI},
                                            {"json", required_argument, NULL, OPT_JSON},
                                            {0}};
    char experts[16] = "288", hidden[16] = "4096", reason[GPU_REASON], resolved[PATH_MAX];
    const char *json = NULL, *by = "cupti";
    int c;
    opterr = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        switch (c) {
        case OPT_EXPERTS:
            snprintf(experts, sizeof experts, "%ld", option_number("--experts", optarg, 1, 65536));
            break;
        case OPT_HIDDEN:
            snprintf(hidden, sizeof hidden, "%ld", option_number("--hidden", optarg, 8, 65536));
            break;
        case OPT_NO_CUPTI: by = "events"; break;
        case OPT_JSON: json = optarg; break;
        default: bad_option("probe", c, argv, optind);
        }
    }
    if (optind != argc) die(2, "probe: takes no arguments");
    if (json && strcmp(json, "-")) json = output_path("--json", json, resolved);
    struct probe p = {.r = {.command = "probe", .seed = -1}};
    char *child[] = {(char *)"moeref-gpu", (char *)"--worker", (char *)"probe", experts, hidden,
                     (char *)by, NULL};
    bool fine = gpu_child_run(child, 120, take_line, &p, reason, sizeof reason);
    if (p.why[0]) die(4, "%s", p.why);
    if (!fine || !p.found) die(4, "no GPU can be used: probing: %s", reason);
    if (json) write_json(&p, json);
    if (!json || strcmp(json, "-")) print_probe(&p);
    return 0;
}
