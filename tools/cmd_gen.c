/* moeref gen CLASS: adversarial inputs (ref/io/generate_edge.h). */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../ref/io/generate_edge.h"
#include "commands.h"
#include "common.h"

const char help_gen[] =
    "usage: moeref gen CLASS [--seed N] [--tokens N] [--level 1|2] -o DIR\n"
    "       moeref gen --list\n"
    "\n"
    "Writes DIR/CLASS.json and DIR/CLASS.safetensors: a case of one class of inputs on which\n"
    "routers have gone wrong. Same arguments, same bytes. Observe what a kernel makes of the\n"
    "logits, then judge it by 'moeref verify DIR/CLASS.json --observed FILE'.\n"
    "\n"
    "  --list          the classes, their fewest tokens a layer at level 1 and 2, what they are\n"
    "  --seed N        (default 1)\n"
    "  --tokens N      of each layer (default: the level's fewest, which fewer may not be)\n"
    "  --level 1|2     1: each pattern of the class once; 2: 16 times with other numbers, and at\n"
    "                  least 64 tokens (default 1)\n"
    "  -o DIR          made if it is not there\n"
    "\n"
    "example: moeref gen tie-at-cut --level 2 -o /tmp/gen\n";

enum { OPT_LIST = 256, OPT_SEED, OPT_TOKENS, OPT_LEVEL };

static const struct option long_options[] = {
    {"list", no_argument, NULL, OPT_LIST},
    {"seed", required_argument, NULL, OPT_SEED},
    {"tokens", required_argument, NULL, OPT_TOKENS},
    {"level", required_argument, NULL, OPT_LEVEL},
    {"output", required_argument, NULL, 'o'},
    {0}};

static int list(void)
{
    printf("%-19s %7s %7s  %s\n", "class", "level 1", "level 2", "router, what is hard");
    for (size_t i = 0; i < mr_edge_count(); i++) {
        const struct mr_edge *c = mr_edge_at(i);
        const struct mr_router *r = &c->router;
        printf("%-19s %7zu %7zu  %s%s, %d of %d", c->name, mr_edge_least(c, 1), mr_edge_least(c, 2),
               mr_score_name(r->score), r->bias ? " + bias" : "", r->top_k, r->experts);
        if (r->n_group > 1) printf(" (%d of %d groups)", r->topk_group, r->n_group);
        printf(": %s\n", c->about);
    }
    return 0;
}

int cmd_gen(int argc, char **argv)
{
    int c, level = 1;
    long seed = 1, tokens = 0;
    const char *folder = NULL;
    bool listed = false, tokens_given = false;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":o:", long_options, NULL)) != -1) {
        switch (c) {
        case 'o': folder = optarg; break;
        case OPT_LIST: listed = true; break;
        case OPT_SEED: seed = option_number("--seed", optarg, 0, 2147483647); break;
        case OPT_TOKENS:
            tokens = option_number("--tokens", optarg, 0, 1 << 20);
            tokens_given = true;
            break;
        case OPT_LEVEL: level = (int)option_number("--level", optarg, 1, MR_EDGE_LEVELS); break;
        default: bad_option("gen", c, argv, optind);
        }
    }
    if (listed) {
        if (optind != argc || folder) die(2, "gen: --list stands alone");
        return list();
    }
    if (argc - optind != 1) die(2, "gen: expected one CLASS (see 'moeref gen --list')");
    if (!folder) die(2, "gen: expected -o DIR");
    const struct mr_edge *class = mr_edge_find(argv[optind]);
    /* 0 stands for the default in the library; asked for, it is a count like any other. */
    if (class && class->patterns && tokens_given && tokens == 0)
        die(2, "gen: --tokens 0: class %s has at least %zu at level %d", class->name,
            mr_edge_least(class, level), level);
    if (class && mkdir(folder, 0777) != 0 && errno != EEXIST)
        die(3, "%s: %s", folder, strerror(errno));
    struct mr_error err = {{0}};
    enum mr_status status = mr_edge_write(argv[optind], (uint64_t)seed, (size_t)tokens, level,
                                          folder, &err);
    if (status) die_of(status, &err);
    return 0;
}
