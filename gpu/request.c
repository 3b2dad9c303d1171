#include "request.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tools/common.h"
#include "device.h"
#include "registry.h"

const char gpu_help_run[] =
    "usage: moeref-gpu run CASE --kernel NAME|all [--rows axis|LIST] [options]\n"
    "\n"
    "Runs kernels on a case, each in a process of its own, and lets the judge of 'moeref verify'\n"
    "say what is right, forced by rounding, or wrong. At every row count all tokens of the case go\n"
    "through the kernel, so many rows a launch; more rows than tokens repeat them. For each kernel\n"
    "and row count:\n"
    "  verdicts      of all rows\n"
    "  flips         rows whose expert set is not the certified one (ties apart)\n"
    "  bit changes   tokens whose logits changed a bit since the row count before\n"
    "  batch flips   tokens whose expert set depends on the number of rows, or on the row's place\n"
    "  batch bits    tokens of whose outputs any bit does\n"
    "Every launch is done over two different poisons, and again; buffers lie between canaries.\n"
    "\n"
    "  --kernel NAME     see 'moeref-gpu list'; all: every kernel\n"
    "  --rows LIST       row counts as in 1,6,96, or axis (default): where kernels change their\n"
    "                    minds, 1 to 8192\n"
    "  --against NAME    runs that kernel, too, and compares the others' rows with its: the largest\n"
    "                    difference of logits, rows with other bits, rows with other experts\n"
    "  --plugin F        adds the kernels of a shared library (gpu/harness.h); repeatable\n"
    "  --out DIR         keeps KERNEL.mROWS.safetensors, which 'moeref verify CASE --observed' judges\n"
    "  --from logits     start from the case's observed logits\n"
    "  --layers L        only these, as in 1,3-5\n"
    "  --phase P         only this phase of the case\n"
    "  --capture F       read the captured tensors from F instead of the case's files\n"
    "  --seed N          seed of a generated case\n"
    "  --timeout S       seconds that one row count may take (default 120)\n"
    "  --launches N      at most so many of one layer at one row count (default 4096): fewer than\n"
    "                    all tokens where that is too few\n"
    "  --threads N       of the judge (default: as many as there are processors)\n"
    "  --strict          exit 1 for rounding and undecided, too\n"
    "  --json F          JSON to F ('-': standard output, and no table)\n"
    "  -q, -v            quiet (no table); verbose (more findings)\n"
    "\n"
    "Exit status: 0 nothing worse than undecided; 1 a row is wrong, malformed or nonfinite, a\n"
    "kernel broke a promise or could not be run; 4 no GPU where one is needed.\n"
    "\n"
    "example: moeref-gpu run cases/glm-5.3-flash.json --kernel all --rows 1,6,96\n";

const char gpu_help_bench[] =
    "usage: moeref-gpu bench CASE --kernel NAME|all [--rows axis|LIST] [options]\n"
    "\n"
    "Times kernels on the first layer of a case: microseconds from the start of the first kernel to\n"
    "the end of the last, in a CUDA graph, by CUPTI (else by events around the replay, which hold\n"
    "its launch, too: the table says which). Cold: the L2 was flushed by reading more than twice its\n"
    "size; warm: the same ran just before. Medians; spread is the 90th less the 10th percentile.\n"
    "Floors are measured in the same run: an empty kernel of 1 and of 288 blocks, and a kernel that\n"
    "only reads the gate weight. Kernels that can tie their chain by programmatic dependent launch\n"
    "are timed with and without.\n"
    "\n"
    "  --kernel NAME     see 'moeref-gpu list'; all: every kernel\n"
    "  --rows LIST       row counts as in 1,6,96, or axis (default)\n"
    "  --plugin F        adds the kernels of a shared library; repeatable\n"
    "  --repeats N       samples (default 201)\n"
    "  --no-cupti        events only: under compute-sanitizer and ncu, which want CUPTI themselves\n"
    "  --layers L, --phase P, --capture F, --seed N, --from logits, --timeout S: as for run\n"
    "  --json F          JSON to F ('-': standard output, and no table)\n"
    "  -q                quiet (no table)\n"
    "\n"
    "example: moeref-gpu bench cases/glm-5.3-flash.json --kernel all --rows 1,6,96 --json -\n";

enum {
    OPT_KERNEL = 256, OPT_ROWS, OPT_PLUGIN, OPT_OUT, OPT_FROM, OPT_LAYERS, OPT_PHASE, OPT_CAPTURE,
    OPT_SEED, OPT_TIMEOUT, OPT_LAUNCHES, OPT_THREADS, OPT_STRICT, OPT_JSON, OPT_REPEATS,
    OPT_NO_CUPTI, OPT_AGAINST
};

#define SHARED                                                                                   \
    {"kernel", required_argument, NULL, OPT_KERNEL}, {"rows", required_argument, NULL, OPT_ROWS}, \
        {"plugin", required_argument, NULL, OPT_PLUGIN},                                         \
        {"from", required_argument, NULL, OPT_FROM},                                             \
        {"layers", required_argument, NULL, OPT_LAYERS},                                         \
        {"phase", required_argument, NULL, OPT_PHASE},                                           \
        {"capture", required_argument, NULL, OPT_CAPTURE},                                       \
        {"seed", required_argument, NULL, OPT_SEED},                                             \
        {"timeout", required_argument, NULL, OPT_TIMEOUT},                                       \
        {"json", required_argument, NULL, OPT_JSON}

static const struct option run_options[] = {
    SHARED, {"out", required_argument, NULL, OPT_OUT},
    {"against", required_argument, NULL, OPT_AGAINST},
    {"launches", required_argument, NULL, OPT_LAUNCHES},
    {"threads", required_argument, NULL, OPT_THREADS}, {"strict", no_argument, NULL, OPT_STRICT},
    {0}};
static const struct option bench_options[] = {
    SHARED, {"repeats", required_argument, NULL, OPT_REPEATS},
    {"no-cupti", no_argument, NULL, OPT_NO_CUPTI}, {0}};

static const char *name_of(enum gpu_command command)
{
    return command == GPU_RUN ? "run" : "bench";
}

static void take(struct gpu_request *r, int option)
{
    struct mr_error err = {{0}};
    switch (option) {
    case 'q': r->quiet = true; break;
    case 'v': r->verbose = true; break;
    case OPT_KERNEL:
        if (r->kernel) die(2, "%s: --kernel twice (all: every kernel)", name_of(r->command));
        r->kernel = optarg;
        break;
    case OPT_AGAINST: r->against = optarg; break;
    case OPT_ROWS:
        if (gpu_rows_parse(optarg, &r->rows, &err)) die(2, "%s", err.text);
        r->rows_listed = strcmp(optarg, "axis") != 0;
        break;
    case OPT_PLUGIN: r->plugin[r->plugin_count++] = optarg; break;
    case OPT_OUT:
        if (!*optarg) die(2, "--out: expected a folder, found an empty name");
        r->out = optarg;
        break;
    case OPT_FROM:
        if (strcmp(optarg, "logits")) die(2, "--from %s: only 'logits' is known", optarg);
        r->from_logits = true;
        break;
    case OPT_LAYERS: check_layers(r->layers = optarg); break;
    case OPT_PHASE: r->phase = optarg; break;
    case OPT_CAPTURE: r->options.capture = optarg; break;
    case OPT_SEED: r->options.seed = option_number("--seed", optarg, 0, 2147483647); break;
    case OPT_TIMEOUT: r->timeout = (double)option_number("--timeout", optarg, 1, 86400); break;
    case OPT_LAUNCHES: r->launches = option_number("--launches", optarg, 1, 1 << 20); break;
    case OPT_THREADS: r->threads = (int)option_number("--threads", optarg, 1, 1024); break;
    case OPT_STRICT: r->strict = true; break;
    case OPT_JSON: r->json = optarg; break;
    case OPT_REPEATS: r->repeats = (int)option_number("--repeats", optarg, 3, 10000); break;
    case OPT_NO_CUPTI: r->no_cupti = true; break;
    default: break;
    }
}

void gpu_request_parse(enum gpu_command command, int argc, char **argv, struct gpu_request *r)
{
    int c;
    *r = (struct gpu_request){.command = command, .options = {.seed = -1}, .timeout = 120,
                              .launches = 4096, .repeats = 201};
    struct mr_error err;
    gpu_rows_parse("axis", &r->rows, &err);
    r->plugin = need((size_t)argc, sizeof *r->plugin);
    opterr = 0;
    optind = 1;
    const struct option *known = command == GPU_RUN ? run_options : bench_options;
    while ((c = getopt_long(argc, argv, ":qv", known, NULL)) != -1) {
        if (c == ':' || c == '?') bad_option(name_of(command), c, argv, optind);
        take(r, c);
    }
    if (argc - optind != 1)
        die(2, "%s: expected one CASE (see '%s help %s')", name_of(command), program_name,
            name_of(command));
    if (!r->kernel)
        die(2, "%s: expected --kernel NAME or --kernel all (see '%s list')", name_of(command),
            program_name);
    r->case_path = argv[optind];
}

void gpu_request_free(struct gpu_request *r)
{
    free(r->plugin);
    *r = (struct gpu_request){0};
}

static _Noreturn void no_kernel(const char *option, const char *name)
{
    char names[1024];
    gpu_kernel_names(names, sizeof names);
    die(2, "%s %s: no such kernel; known: %s", option, name, names);
}

static void check_kernel(const struct gpu_request *r)
{
    const struct mr_kernel *k = gpu_kernel_find(r->kernel);
    if (!gpu_kernel_count())
        die(4, "%s: there are no kernels: none is built in%s, and --plugin names none",
            name_of(r->command),
            gpu_built_with_cuda() ? "" : " (nvcc was missing when this was made)");
    if (r->against && !gpu_kernel_find(r->against)) no_kernel("--against", r->against);
    if (!strcmp(r->kernel, "all")) return;
    if (!k) no_kernel("--kernel", r->kernel);
    for (size_t i = 0; i < r->rows.count && r->rows_listed; i++) {
        int m = r->rows.at[i];
        if (m >= k->min_rows && (!k->max_rows || m <= k->max_rows)) continue;
        if (k->max_rows)
            die(2, "--rows %d: kernel %s serves %d to %d rows", m, k->name, k->min_rows,
                k->max_rows);
        die(2, "--rows %d: kernel %s serves %d rows and more", m, k->name, k->min_rows);
    }
}

struct mr_case *gpu_request_open(const struct gpu_request *r)
{
    struct mr_error err = {{0}};
    struct mr_case *c;
    enum mr_status status = gpu_registry_check(&err);
    for (size_t i = 0; i < r->plugin_count && !status; i++)
        status = gpu_plugin_load(r->plugin[i], &err);
    if (status) die_of(status, &err);
    check_kernel(r);
    status = mr_case_load(r->case_path, &r->options, &c, &err);
    if (status) die_of(status, &err);
    if (r->options.seed >= 0 && !json_object_get(mr_case_json(c), "generate"))
        die(2, "%s: --seed: %s generates nothing", name_of(r->command), mr_case_name(c));
    bool known = !r->phase;
    for (size_t p = 0; p < mr_case_phase_count(c); p++)
        if (r->phase && !strcmp(r->phase, mr_case_phase(c, p))) known = true;
    if (!known) die(3, "%s: no phase '%s'", mr_case_name(c), r->phase);
    need_layers(c, r->layers);
    return c;
}

size_t gpu_request_kernels(const struct gpu_request *r, const struct mr_kernel **out)
{
    size_t n = 0;
    for (size_t i = 0; i < gpu_kernel_count(); i++)
        if (!strcmp(r->kernel, "all") || !strcmp(r->kernel, gpu_kernel_at(i)->name) ||
            (r->against && !strcmp(r->against, gpu_kernel_at(i)->name)))
            out[n++] = gpu_kernel_at(i);
    return n;
}

/* Arguments are put one after the other into one block behind the pointers. */
struct list {
    char **argv, *text, *end;
    size_t count;
};

enum { ARGUMENTS = 64, TEXT = 1 << 20 };

static void put(struct list *l, const char *word)
{
    size_t n = strlen(word) + 1;
    if ((size_t)(l->end - l->text) < n) die(2, "the command line is too long");
    l->argv[l->count++] = memcpy(l->text, word, n);
    l->text += n;
}

static void put_option(struct list *l, const char *option, const char *value)
{
    if (!value) return;
    put(l, option);
    put(l, value);
}

static void put_number(struct list *l, const char *option, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    put_option(l, option, text);
}

char **gpu_request_child(const struct gpu_request *r, const struct mr_kernel *kernel,
                         const struct gpu_rows *rows, const char *folder)
{
    size_t pointers = (ARGUMENTS + 2 * r->plugin_count) * sizeof(char *);
    char list[GPU_ROWS_MOST * 8] = "", *block = need(1, pointers + TEXT);
    struct list l = {(char **)(void *)block, block + pointers, block + pointers + TEXT, 0};
    for (size_t i = 0, n = 0; i < rows->count; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", i ? "," : "", rows->at[i]);
    put(&l, "moeref-gpu");
    put(&l, "--worker");
    put(&l, name_of(r->command));
    put_option(&l, "--kernel", kernel->name);
    put_option(&l, "--rows", list);
    put_option(&l, "--layers", r->layers);
    put_option(&l, "--phase", r->phase);
    put_option(&l, "--capture", r->options.capture);
    if (r->options.seed >= 0) put_number(&l, "--seed", r->options.seed);
    if (r->from_logits) put_option(&l, "--from", "logits");
    for (size_t i = 0; i < r->plugin_count; i++) put_option(&l, "--plugin", r->plugin[i]);
    if (r->command == GPU_RUN) {
        put_option(&l, "--out", folder);
        put_number(&l, "--launches", r->launches);
    } else {
        put_number(&l, "--repeats", r->repeats);
        if (r->no_cupti) put(&l, "--no-cupti");
    }
    put(&l, "--");
    put(&l, r->case_path);
    return l.argv;
}
