/* moeref router CONFIG: how a config.json was understood. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "../ref/io/config.h"
#include "../ref/io/report.h"
#include "commands.h"
#include "common.h"

const char help_router[] =
    "usage: moeref router CONFIG [--json F] [-q]\n"
    "\n"
    "Shows what a Hugging Face config.json says about the router: every figure, and the key or\n"
    "the documented class default it came from. What is not understood is refused, never guessed:\n"
    "an unknown scoring_func or topk_method, a missing key without a documented default, a dense\n"
    "model.\n"
    "\n"
    "  --json F   write JSON to F ('-': standard output, and no text)\n"
    "  -q         no text: only the exit status, 0 if all is understood, 3 if not\n"
    "\n"
    "example: moeref router data/captures/glm4moe-tiny/config.json\n";

static json_t *router_json(const struct mr_config *c)
{
    const struct mr_router *r = &c->router;
    json_t *layers = json_array(), *from = json_object();
    for (int i = 0; i < c->moe_layer_count; i++)
        json_array_append_new(layers, json_integer(c->moe_layers[i]));
    for (size_t i = 0; i < c->source_count; i++) {
        const struct mr_config_source *s = &c->sources[i];
        json_object_set_new(from, s->field, json_string(s->key[0] ? s->key : s->note));
    }
    /* Without group-limited selection a group has no score. */
    json_t *group_score =
        c->has_groups ? json_string(mr_group_score_name(r->group_score)) : json_null();
    return json_pack(
        "{s:{s:s, s:s, s:i, s:i, s:i, s:s, s:s, s:b, s:b, s:i, s:i, s:o, s:b, s:f, s:b, s:i, s:i,"
        " s:i, s:i, s:o, s:o}}",
        "router", "model_type", c->model_type, "text_model_type", c->text_type, "experts",
        r->experts, "top_k", r->top_k, "hidden", r->hidden, "score", mr_score_name(r->score),
        "selection", mr_selection_name(r->selection), "bias", r->bias, "gate_bias", r->gate_bias,
        "n_group", r->n_group, "topk_group", r->topk_group, "group_score", group_score,
        "norm_topk_prob", r->norm_topk_prob, "routed_scaling_factor", r->routed_scaling_factor,
        "expert_scale", c->expert_scale, "shared_experts", c->shared_experts, "moe_intermediate",
        c->moe_intermediate, "hash_layers", r->hash_layers, "layers", c->layers, "moe_layers",
        layers, "from", from);
}

/* 1,3-5 rather than a list of 58 numbers. */
static void print_ranges(const int *v, int n)
{
    for (int i = 0; i < n;) {
        int j = i;
        while (j + 1 < n && v[j + 1] == v[j] + 1) j++;
        printf(i ? ",%d" : "%d", v[i]);
        if (j > i) printf("-%d", v[j]);
        i = j + 1;
    }
}

static const char *yes_no(bool b)
{
    return b ? "yes" : "no";
}

static void print_value(const struct mr_config *c, const char *field)
{
    const struct mr_router *r = &c->router;
    const struct {
        const char *field;
        int value;
    } numbers[] = {{"experts", r->experts}, {"top_k", r->top_k}, {"hidden", r->hidden},
                   {"n_group", r->n_group}, {"topk_group", r->topk_group},
                   {"shared_experts", c->shared_experts}, {"moe_intermediate", c->moe_intermediate},
                   {"hash_layers", r->hash_layers}, {"layers", c->layers}};
    const struct {
        const char *field, *value;
    } words[] = {{"score", mr_score_name(r->score)},
                 {"selection", mr_selection_name(r->selection)},
                 {"group_score", c->has_groups ? mr_group_score_name(r->group_score) : "-"},
                 {"bias", yes_no(r->bias)}, {"gate_bias", yes_no(r->gate_bias)},
                 {"norm_topk_prob", yes_no(r->norm_topk_prob)},
                 {"expert_scale", yes_no(c->expert_scale)}};
    if (!strcmp(field, "routed_scaling_factor")) printf("%.17g", r->routed_scaling_factor);
    if (!strcmp(field, "moe_layers")) print_ranges(c->moe_layers, c->moe_layer_count);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(field, numbers[i].field)) printf("%d", numbers[i].value);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(field, words[i].field)) fputs(words[i].value, stdout);
}

int cmd_router(int argc, char **argv)
{
    static const struct option options[] = {{"json", required_argument, NULL, 'j'}, {0}};
    const char *json = NULL;
    bool quiet = false;
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":qv", options, NULL)) != -1) {
        if (c == 'j') json = optarg;
        else if (c == 'q') quiet = true;
        else if (c != 'v') bad_option("router", c, argv, optind);
    }
    if (argc - optind != 1) die(2, "router: expected one CONFIG (see 'moeref help router')");
    char resolved[PATH_MAX];
    if (json && strcmp(json, "-")) json = output_path("--json", json, resolved);
    struct mr_config config;
    struct mr_error err = {{0}};
    enum mr_status status = mr_config_load(argv[optind], &config, &err);
    if (status) die_of(status, &err);
    if (json) {
        json_t *doc = router_json(&config);
        status = mr_json_write(doc, json, &err);
        json_decref(doc);
        if (status) die_of(status, &err);
        if (!strcmp(json, "-")) return 0;
    }
    if (quiet) return 0;
    printf("%s: model_type %s", argv[optind], config.model_type);
    if (strcmp(config.model_type, config.text_type)) printf(", text model %s", config.text_type);
    putchar('\n');
    for (size_t i = 0; i < config.source_count; i++) {
        const struct mr_config_source *s = &config.sources[i];
        printf("  %-22s ", s->field);
        print_value(&config, s->field);
        if (s->key[0] && s->note[0]) printf("  <- %s (%s)\n", s->key, s->note);
        else printf("  <- %s\n", s->key[0] ? s->key : s->note);
    }
    return 0;
}
