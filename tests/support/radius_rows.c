#include "radius_rows.h"

#include <check.h>
#include <math.h>

float rows_bf16(double value)
{
    return kernel_narrow(MR_TYPE_BF16, (float)value);
}

float rows_any(uint64_t *state)
{
    float v = rows_bf16(ldexp(1 + kernel_uniform(state), (int)(kernel_random(state) % 10) - 5));
    return kernel_random(state) & 1 ? v : -v;
}

struct mr_dot rows_dot(const struct rows *r, double *exact)
{
    struct mr_dot d = {.terms = r->n, .exact = true};
    *exact = 0;
    for (size_t i = 0; i < r->n; i++) {
        double p = (double)r->x[i] * r->w[i];
        *exact += p;
        d.magnitude += fabs(p);
    }
    return d;
}

double rows_ratio(const struct mr_sum *sum, const struct rows *r, float computed)
{
    double exact;
    struct mr_dot d = rows_dot(r, &exact);
    double error = fabs(computed - exact), radius = mr_sum_radius(sum, &d, exact, 0);
    ck_assert_msg(error <= radius, "%zu terms: error %g, radius %g", r->n, error, radius);
    return error > 0 ? error / radius : 0;
}

static float run(const struct kernel *k, const struct rows *r, uint64_t seed)
{
    if (k->tensor) return kernel_tensor(r->x, r->w, r->n, k->splits);
    return kernel_sum(k->order, k->fused, r->x, r->w, r->n, &seed);
}

double rows_climb(const struct kernel *k, const struct mr_sum *sum, size_t n, int moves,
                  uint64_t *state)
{
    static struct rows r;
    r.n = n;
    for (size_t i = 0; i < n; i++) {
        r.x[i] = rows_any(state);
        r.w[i] = rows_any(state);
    }
    uint64_t seed = kernel_random(state);
    double best = rows_ratio(sum, &r, run(k, &r, seed));
    for (int m = 0; m < moves; m++) {
        float *v = (kernel_random(state) & 1 ? r.x : r.w) + kernel_random(state) % n, old = *v;
        switch (kernel_random(state) % 5) {
        case 0: *v = rows_any(state); break;
        case 1: *v = fabsf(old) < 16 ? 2 * old : old; break;
        case 2: *v = fabsf(old) > 0x1p-4f ? 0.5f * old : old; break;
        case 3: *v = -old; break;
        default: *v = rows_bf16(old * (kernel_random(state) & 1 ? 1 + 0x1p-7 : 1 - 0x1p-7));
        }
        if (fabsf(*v) >= 32 || fabsf(*v) < 0x1p-5f) *v = old;
        double now = rows_ratio(sum, &r, run(k, &r, seed));
        if (now >= best)
            best = now;
        else
            *v = old;
    }
    return best;
}
