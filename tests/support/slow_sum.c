#include "slow_sum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/arith/mma.h"
#include "../../ref/num/num.h"
#include "mpfr_oracle.h"

struct dot {
    const struct mr_sum_shape *sum;
    const float *x, *w, *scale;
};

uint32_t slow_bits(float v)
{
    uint32_t word;
    memcpy(&word, &v, sizeof word);
    return isnan(v) ? 0x7fffffff : word;
}

static uint32_t code(enum mr_mma_type type, float v)
{
    bool exact;
    uint32_t word;
    memcpy(&word, &v, sizeof word);
    return type == MR_MMA_TF32 ? word & 0xffffe000 : mr_mma_encode_exact(type, word, &exact);
}

static float leaf(const struct dot *d, const size_t *term, size_t n)
{
    const struct mr_mma *mma = d->sum->mma;
    volatile float c = 0;
    if (d->sum->leaf == MR_LEAF_MMA) {
        uint32_t a[4096], b[4096], bits;
        for (size_t i = 0; i < n; i++) {
            a[i] = code(mma->a, d->x[term[i]]);
            b[i] = code(mma->b, d->w[term[i]]);
        }
        bits = mr_mma_step(mma, a, b, n, 0, NULL);
        float v;
        memcpy(&v, &bits, sizeof v);
        return mma->accumulator == MR_MMA_FP16 ? mr_fp16_decode((uint16_t)bits) : v;
    }
    for (size_t i = 0; i < n; i++) {
        if (d->sum->leaf == MR_LEAF_FMA) {
            c = fmaf(d->x[term[i]], d->w[term[i]], c);
        } else {
            volatile float p = d->x[term[i]] * d->w[term[i]];
            c = c + p;
        }
    }
    return c;
}

/* Which part position i of n belongs to: the rules of the levels, one by one. */
static size_t part_of(const struct mr_sum_level *l, size_t n, size_t i)
{
    size_t tile = i / (size_t)l->tile, tiles = (n + (size_t)l->tile - 1) / (size_t)l->tile;
    size_t s = (size_t)l->parts, run, longer;
    switch (l->cut) {
    case MR_CUT_RUNS: run = (tiles + s - 1) / s; return tile / run;
    case MR_CUT_EVEN:
        run = tiles / s;
        longer = tiles % s;
        if (tile < longer * (run + 1)) return tile / (run + 1);
        return longer + (tile - longer * (run + 1)) / run;
    case MR_CUT_DEAL: return tile % s;
    default: return tile;
    }
}

/* A butterfly as lanes do it, all of a power of two of them; a lane that has nothing is left out.
 */
static float butterfly(const float *part, size_t n, bool halves)
{
    size_t lanes = 1;
    while (lanes < n) lanes *= 2;
    float *v = calloc(2 * lanes, sizeof *v), *next = v + lanes;
    bool *has = calloc(2 * lanes, 1), *will = has + lanes;
    for (size_t i = 0; i < n; i++) v[i] = part[i], has[i] = true;
    for (size_t step = 1; step < lanes; step *= 2) {
        size_t d = halves ? lanes / 2 / step : step;
        for (size_t i = 0; i < lanes; i++) {
            size_t j = i ^ d;
            next[i] = has[i] && has[j] ? v[i] + v[j] : has[i] ? v[i] : v[j];
            will[i] = has[i] || has[j];
        }
        memcpy(v, next, lanes * sizeof *v);
        memcpy(has, will, lanes);
    }
    float result = v[0];
    free(v);
    free(has);
    return result;
}

static float added(enum mr_reduce how, const float *part, size_t n)
{
    if (how == MR_REDUCE_HALVES || how == MR_REDUCE_PAIRS)
        return butterfly(part, n, how == MR_REDUCE_HALVES);
    volatile float sum = part[how == MR_REDUCE_REVERSE ? n - 1 : 0];
    for (size_t i = 1; i < n; i++) sum = sum + part[how == MR_REDUCE_REVERSE ? n - 1 - i : i];
    return sum;
}

static float part_sum(const struct dot *d, int levels, const size_t *term, size_t n)
{
    if (!levels) return leaf(d, term, n);
    const struct mr_sum_level *l = &d->sum->level[levels - 1];
    size_t most = 0, count = 0;
    for (size_t i = 0; i < n; i++)
        if (part_of(l, n, i) > most) most = part_of(l, n, i);
    float *part = malloc((most + 1) * sizeof *part);
    size_t *mine = malloc(n * sizeof *mine);
    volatile float accumulator = 0;
    for (size_t p = 0; p <= most; p++) {
        size_t m = 0;
        for (size_t i = 0; i < n; i++)
            if (part_of(l, n, i) == p) mine[m++] = term[i];
        if (!m) continue;
        part[count++] = part_sum(d, levels - 1, mine, m);
        if (l->cut == MR_CUT_PROMOTE) {
            float scale = d->scale ? d->scale[mine[0] / (size_t)l->tile] : 1;
            accumulator = fmaf(scale, part[count - 1], accumulator);
        }
    }
    float result = l->cut == MR_CUT_PROMOTE ? accumulator : added(l->reduce, part, count);
    free(part);
    free(mine);
    return result;
}

float slow_sum(const struct mr_sum_shape *sum, const float *x, const float *w, size_t n,
               const float *scale)
{
    struct dot d = {sum, x, w, scale};
    if (!n) return 0;
    size_t *term = malloc(n * sizeof *term);
    for (size_t i = 0; i < n; i++) term[i] = i;
    float result = part_sum(&d, sum->levels, term, n);
    free(term);
    return result;
}

void slow_shape(uint64_t *seed, size_t n, int levels, const char *const *instructions,
                struct mr_sum_shape *out)
{
    size_t count = 0;
    while (instructions && instructions[count]) count++;
    *out = (struct mr_sum_shape){0};
    size_t leaf = oracle_random(seed) % (2 + count);
    out->leaf = leaf == 0 ? MR_LEAF_FMA : leaf == 1 ? MR_LEAF_MUL_ADD : MR_LEAF_MMA;
    if (leaf > 1) out->mma = mr_mma_find(instructions[leaf - 2], strlen(instructions[leaf - 2]));
    out->levels = (int)(oracle_random(seed) % (uint64_t)(levels + 1));
    for (int i = 0; i < out->levels; i++) {
        struct mr_sum_level *l = &out->level[i];
        l->cut = (enum mr_cut)(oracle_random(seed) % 5);
        l->tile = 1 << oracle_random(seed) % 6;
        if (oracle_random(seed) % 4 == 0) l->tile = 1 + (int)(oracle_random(seed) % (n / 2 + 1));
        if (l->cut == MR_CUT_EVERY || l->cut == MR_CUT_PROMOTE) {
            if (l->cut == MR_CUT_EVERY) l->reduce = (enum mr_reduce)(oracle_random(seed) % 4);
            continue;
        }
        l->parts = 1 + (int)(oracle_random(seed) % 40);
        if (oracle_random(seed) % 3 == 0) l->parts = 1 << oracle_random(seed) % 6;
        l->reduce = (enum mr_reduce)(oracle_random(seed) % 4);
    }
}

static float cut(float v, int bits)
{
    return bits == 8 ? mr_bf16_decode(mr_bf16_encode(v, MR_RNE, MR_OVERFLOW_IEEE)) : v;
}

static float one(uint64_t *seed, enum slow_class class, int bits)
{
    double unit = oracle_uniform(seed, -1, 1);
    uint64_t draw = oracle_random(seed), more = oracle_random(seed);
    switch (class) {
    case SLOW_TIES: return ldexpf((float)((int)(draw % 9) - 4), (int)(more % 3) * 12 - 12);
    case SLOW_SPREAD:
        if (draw % 16 == 0) return draw & 16 ? 0.0f : -0.0f;
        return cut((float)ldexp(unit, (int)(more % 121) - 60), bits);
    case SLOW_TINY:
        if (draw & 1) return ldexpf((float)(int)(draw / 2 % 4) * (more & 1 ? 1.0f : -1.0f), -75);
        return cut((float)ldexp(unit, (int)(more % 24) - 86), bits);
    case SLOW_HUGE: return cut((float)ldexp(unit, (int)(more % 8) + 59), bits);
    case SLOW_HALVES:
        if (bits == 8 || draw % 3 == 0) return (float)((int)(more % 5) - 2);
        return ldexpf(more & 1 ? 0x1.000002p0f : 0x1.fffffcp-1f, more & 2 ? -12 : -11);
    case SLOW_SPECIAL:
        if (draw % 97 == 0) return more % 4 == 0 ? NAN : more & 4 ? INFINITY : -INFINITY;
        return draw % 11 == 0 ? 0 : cut((float)unit, bits);
    case SLOW_CANCEL: return (draw & 1 ? 1.0f : -1.0f) * (float)(1 + more % 3);
    default: return cut((float)(unit * 2), bits);
    }
}

void slow_fill(uint64_t *seed, enum slow_class class, int bits, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = one(seed, class, bits);
}
