/* moeref export CASE: any case as one JSON and one safetensors file (ref/io/export.h). */
#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "../ref/io/export.h"
#include "case_arguments.h"
#include "commands.h"
#include "common.h"

const char help_export[] =
    "usage: moeref export CASE [--logits fp32|bf16|fp16] [options] -o DIR\n"
    "\n"
    "Writes a case out whole, for programs that know neither config.json nor generators:\n"
    "DIR/NAME.json with every figure of the router, and DIR/NAME.safetensors with all tensors as\n"
    "stored, under the names model.layers.N.mlp.gate.weight, .gate.e_score_correction_bias,\n"
    ".gate.bias, PHASE.model.layers.N.mlp.gate.input, .gate.logits, .topk_ids, .topk_weights.\n"
    "Route and verify find in it what they find in CASE. A kernel is run on these numbers, and its\n"
    "output judged by 'moeref verify DIR/NAME.json --observed FILE'.\n"
    "\n"
    "  --logits T        instead, NAME.T-logits: a case that starts from the exact logits of CASE,\n"
    "                    each rounded once to T (or from its given ones, so rounded), for kernels\n"
    "                    that take logits: judged on precisely the numbers that they got. A gate\n"
    "                    bias is added in fp32\n"
    "  --layers L        only these, as in 1,3-5\n"
    "  --phase P         only this phase of the case\n"
    "  --seed N          seed of a generated case\n"
    "  -o DIR            made if it is not there. Same arguments, same bytes; a file that is there\n"
    "                    with other bytes is not overwritten\n"
    "\n"
    "example: moeref export cases/glm-5.3-flash.json --logits bf16 -o /tmp/glm\n";

enum { OPT_LOGITS = 256, OPT_LAYERS, OPT_PHASE, OPT_SEED };

static const struct option long_options[] = {
    {"logits", required_argument, NULL, OPT_LOGITS},
    {"layers", required_argument, NULL, OPT_LAYERS},
    {"phase", required_argument, NULL, OPT_PHASE},
    {"seed", required_argument, NULL, OPT_SEED},
    {"output", required_argument, NULL, 'o'},
    {0}};

static enum mr_dtype logits_type(const char *name)
{
    if (!strcmp(name, "fp32")) return MR_F32;
    if (!strcmp(name, "bf16")) return MR_BF16;
    if (!strcmp(name, "fp16")) return MR_F16;
    die(2, "export: --logits %s: expected fp32, bf16 or fp16", name);
}

static bool has_phase(const struct mr_case *c, const char *phase)
{
    for (size_t p = 0; p < mr_case_phase_count(c); p++)
        if (!strcmp(phase, mr_case_phase(c, p))) return true;
    return false;
}

int cmd_export(int argc, char **argv)
{
    struct mr_export how = {.seed = -1};
    struct mr_case_options options = {.seed = -1};
    const char *layers = NULL;
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":o:", long_options, NULL)) != -1) {
        switch (c) {
        case 'o': how.folder = optarg; break;
        case OPT_LOGITS:
            how.logits = true;
            how.type = logits_type(optarg);
            break;
        case OPT_LAYERS: check_layers(layers = optarg); break;
        case OPT_PHASE: how.phase = optarg; break;
        case OPT_SEED:
            how.seed = options.seed = option_number("--seed", optarg, 0, 2147483647);
            break;
        default: bad_option("export", c, argv, optind);
        }
    }
    if (argc - optind != 1) die(2, "export: expected one CASE (see 'moeref help export')");
    if (!how.folder || !*how.folder) die(2, "export: expected -o DIR");
    struct mr_case *from = open_case("export", argv[optind], NULL, &options);
    if (how.phase && !has_phase(from, how.phase))
        die(3, "%s: no phase '%s'", mr_case_name(from), how.phase);
    need_layers(from, layers);
    bool *wanted = need(mr_case_layer_count(from), sizeof *wanted);
    for (size_t i = 0; i < mr_case_layer_count(from); i++)
        wanted[i] = layer_listed(layers, mr_case_layer_number(from, i));
    if (layers) how.layers = wanted;
    if (mkdir(how.folder, 0777) != 0 && errno != EEXIST)
        die(3, "%s: %s", how.folder, strerror(errno));
    struct mr_error err = {{0}};
    enum mr_status status = mr_export_write(from, &how, &err);
    if (status) die_of(status, &err);
    free(wanted);
    mr_case_free(from);
    return 0;
}
