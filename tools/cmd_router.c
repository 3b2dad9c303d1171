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
    "Shows what a Hugging Face config.json says about the router: every figure, and the key or the\n"
    "documented class default it came from. What is not understood is refused, never guessed.\n"
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
    return json_pack(
        "{s:{s:s, s:i, s:i, s:i, s:s, s:b, s:i, s:i, s:b, s:f, s:i, s:i, s:o, s:o}}", "router",
        "model_type", c->model_type, "experts", r->experts, "top_k", r->top_k, "hidden", r->hidden,
        "score", mr_score_name(r->score), "bias", r->bias, "n_group", r->n_group, "topk_group",
        r->topk_group, "norm_topk_prob", r->norm_topk_prob, "routed_scaling_factor",
        r->routed_scaling_factor, "shared_experts", c->shared_experts, "moe_intermediate",
        c->moe_intermediate, "moe_layers", layers, "from", from);
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

static void print_value(const struct mr_config *c, const char *field)
{
    const struct mr_router *r = &c->router;
    if (!strcmp(field, "experts")) printf("%d", r->experts);
    else if (!strcmp(field, "top_k")) printf("%d", r->top_k);
    else if (!strcmp(field, "hidden")) printf("%d", r->hidden);
    else if (!strcmp(field, "score")) fputs(mr_score_name(r->score), stdout);
    else if (!strcmp(field, "bias")) fputs(r->bias ? "yes" : "no", stdout);
    else if (!strcmp(field, "n_group")) printf("%d", r->n_group);
    else if (!strcmp(field, "topk_group")) printf("%d", r->topk_group);
    else if (!strcmp(field, "norm_topk_prob")) fputs(r->norm_topk_prob ? "yes" : "no", stdout);
    else if (!strcmp(field, "routed_scaling_factor")) printf("%.17g", r->routed_scaling_factor);
    else if (!strcmp(field, "shared_experts")) printf("%d", c->shared_experts);
    else if (!strcmp(field, "moe_intermediate")) printf("%d", c->moe_intermediate);
    else if (!strcmp(field, "layers")) printf("%d", c->layers);
    else if (!strcmp(field, "moe_layers")) print_ranges(c->moe_layers, c->moe_layer_count);
    else fputs("?", stdout);
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
    printf("%s: model_type %s\n", argv[optind], config.model_type);
    for (size_t i = 0; i < config.source_count; i++) {
        const struct mr_config_source *s = &config.sources[i];
        printf("  %-22s ", s->field);
        print_value(&config, s->field);
        if (s->key[0]) printf("  <- %s%s%s%s\n", s->key, s->note[0] ? " (" : "", s->note, s->note[0] ? ")" : "");
        else printf("  <- %s\n", s->note);
    }
    return 0;
}
