/* Adversarial inputs by class: logits (and biases) on which routers have gone wrong, for top-k
 * kernels, for the judge and for tests. Deterministic as generate.h is: counter-based bits, integer
 * arithmetic and exact fp32 values only, so the same arguments give the same bytes everywhere.
 *
 * A class names one difficulty and brings the router that has it. Token t shows pattern t modulo
 * the number of patterns of its class, so at level 1 every pattern is there at least once, at level
 * 2 at least 16 times with other numbers. Its table row names the public reports behind it. */
#ifndef MOEREF_GENERATE_EDGE_H
#define MOEREF_GENERATE_EDGE_H

#include <stddef.h>
#include <stdint.h>

#include "../route/router.h"
#include "../status.h"

/* One layer to fill. A class serves any router that has what it needs (groups, a bias). */
struct mr_edge_job {
    const struct mr_router *router;
    uint64_t key;    /* of (seed, class, layer) */
    int layer;
    size_t tokens, stride; /* stride: elements from row to row, at least experts */
    float *logits;   /* [tokens, stride] */
    float *bias;     /* [experts], or NULL: the router has none */
    int *order;      /* scratch, [experts] */
};

struct mr_edge {
    const char *name, *about;
    struct mr_router router;
    int layers;       /* numbered from 0; about says what differs between them */
    size_t row_stride; /* of the case; 0: experts */
    size_t patterns;  /* tokens of each layer at least, at level 1; 0: the class holds no token */
    size_t most;      /* tokens at most; 0: 2^20 */
    void (*fill)(const struct mr_edge_job *job);
};

enum { MR_EDGE_LEVELS = 2 };

size_t mr_edge_count(void);
const struct mr_edge *mr_edge_at(size_t i);
const struct mr_edge *mr_edge_find(const char *name); /* NULL: no such class */
/* "all-equal, all-negative, ...": for messages. size 1024 is always enough. */
void mr_edge_names(char *text, size_t size);

/* Tokens of a layer at least, at level 1 or 2. */
size_t mr_edge_least(const struct mr_edge *class, int level);

/* Fills one layer for a router (the class's own, or another of the same kind: groups where the
 * class has groups). logits [tokens, stride], bias [experts] or NULL. MR_ERR_VALUE: groups are
 * missing, or stride < experts. */
enum mr_status mr_edge_layer(const struct mr_edge *class, const struct mr_router *router,
                             uint64_t seed, int layer, size_t tokens, size_t stride, float *logits,
                             float *bias, struct mr_error *err);

/* Writes FOLDER/CLASS.json and FOLDER/CLASS.safetensors. tokens 0 takes the level's least (a class
 * without tokens writes none); fewer than that is MR_ERR_VALUE, naming the least. An unknown class
 * is MR_ERR_USAGE and lists the known. */
enum mr_status mr_edge_write(const char *class, uint64_t seed, size_t tokens, int level,
                             const char *folder, struct mr_error *err);

#endif
