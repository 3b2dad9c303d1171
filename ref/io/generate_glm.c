/* Class "glm-5.3-flash"; generate.h says what was fitted, and to what. */
#include <math.h>
#include <stdlib.h>

#include "generate_class.h"
#include "generate_rows.h"

#define BIAS_MIDDLE 11.75 /* of the published band [11.54, 11.96]; a bf16 value, by chance */
#define BIAS_HALF 0.21
#define BIAS_LINEAR 0.11 /* fitted */
#define CUT_SCORE 0.29   /* fitted */
#define LOGIT_STD 0.76   /* fitted */
#define CUT_NORMAL 1.9145058250555569 /* exceeded by a standard normal with probability 8/288 */

#define OUTLIER_EVERY 512     /* hidden channels to one outlier channel */
#define OUTLIER_SPREAD 0.0625 /* standard deviation of an outlier channel over its mean */

/* ln(q / (1-q)) = 2 artanh(2q-1) by its power series. libm's log differs in the last place between
 * machines; these operations are rounded exactly. |2q-1| < 0.9 here: the tail left out is below
 * 1e-6, and no matter, for nothing compares this with a logarithm. */
static double logit(double q)
{
    double y = 2 * q - 1, y2 = y * y, power = y, sum = 0;
    for (int n = 1; n < 120; n += 2) {
        sum += power / n;
        power *= y2;
    }
    return 2 * sum;
}

struct place {
    uint64_t bits;
    size_t expert;
};

static int by_bits(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->bits != y->bits) return x->bits < y->bits ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

/* Biases before rounding: the cubic's quantiles, one from each of `experts` equal slices (so that
 * every layer and seed has the same shape and fills the band), dealt out in random order. */
static enum mr_status draw_biases(uint64_t key, size_t experts, double *bias, struct mr_error *err)
{
    struct place *order = calloc(experts, sizeof *order);
    if (!order)
        return mr_fail(err, MR_ERR_MEMORY, "generate: no memory to order %zu experts", experts);
    uint64_t order_key = mr_generate_key(key, MR_STREAM_ORDER);
    uint64_t bias_key = mr_generate_key(key, MR_STREAM_BIAS);
    for (size_t e = 0; e < experts; e++)
        order[e] = (struct place){mr_generate_bits(order_key, e), e};
    qsort(order, experts, sizeof *order, by_bits);
    for (size_t i = 0; i < experts; i++) {
        double u = mr_generate_uniform(mr_generate_bits(bias_key, i));
        double v = 2 * (((double)i + u) / (double)experts) - 1;
        double cubic = v * (BIAS_LINEAR + (1 - BIAS_LINEAR) * (v * v));
        bias[order[i].expert] = BIAS_MIDDLE + BIAS_HALF * cubic;
    }
    free(order);
    return MR_OK;
}

struct outliers {
    size_t count;
    double size; /* |mean| of an outlier channel */
};

/* One column in each block of OUTLIER_EVERY; *sign is that of its mean. */
static size_t outlier_column(uint64_t key, size_t i, size_t hidden, double *sign)
{
    uint64_t bits = mr_generate_bits(mr_generate_key(key, MR_STREAM_OUTLIER), i);
    size_t block = hidden < OUTLIER_EVERY ? hidden : OUTLIER_EVERY;
    *sign = bits >> 63 ? -1 : 1;
    return i * OUTLIER_EVERY + (size_t)((bits & 0xffffffff) % block);
}

static void fill_hidden(const struct mr_generate_job *job, struct outliers outliers)
{
    size_t hidden = (size_t)job->router->hidden;
    uint64_t key = mr_generate_key(job->key, MR_STREAM_CHANNEL);
    /* Channel gains in (0.5, 1.5), as the weights of an RMSNorm vary: mean square 13/12. Scaled so
     * that the ordinary channels hold half of the energy; the outliers hold the other half. */
    double scale = sqrt(0.5 * 12 / 13) / MR_GENERATE_SD;
    for (size_t c = 0; c < hidden; c++) {
        job->base[c] = 0;
        job->gain[c] = (float)((0.5 + mr_generate_uniform(mr_generate_bits(key, c))) * scale);
    }
    for (size_t i = 0; i < outliers.count; i++) {
        double sign;
        size_t c = outlier_column(job->key, i, hidden, &sign);
        job->base[c] = (float)(sign * outliers.size);
        job->gain[c] = (float)(outliers.size * OUTLIER_SPREAD / MR_GENERATE_SD);
    }
    mr_generate_rows(job->hidden_key, job->out->tokens, hidden, job->base, job->gain,
                     job->out->hidden);
}

static void fill_gate(const struct mr_generate_job *job, struct outliers outliers,
                      const double *bias)
{
    size_t hidden = (size_t)job->router->hidden, experts = (size_t)job->router->experts;
    float gain = (float)(LOGIT_STD / sqrt(0.5 * (double)hidden) / MR_GENERATE_SD);
    for (size_t c = 0; c < hidden; c++) {
        job->base[c] = 0;
        job->gain[c] = gain;
    }
    mr_generate_rows(mr_generate_key(job->key, MR_STREAM_GATE), experts, hidden, job->base,
                     job->gain, job->out->gate);
    for (size_t e = 0; e < experts; e++) {
        double cut = CUT_SCORE + (BIAS_MIDDLE - bias[e]); /* cut - LOGIT_STD * z is the mean */
        double mean = logit(cut) - LOGIT_STD * CUT_NORMAL;
        for (size_t i = 0; i < outliers.count; i++) {
            double sign;
            size_t c = outlier_column(job->key, i, hidden, &sign);
            job->out->gate[e * hidden + c] =
                mr_generate_bf16(sign * mean / (outliers.size * (double)outliers.count));
        }
    }
}

enum mr_status mr_generate_glm_layer(const struct mr_generate_job *job, struct mr_error *err)
{
    size_t hidden = (size_t)job->router->hidden, experts = (size_t)job->router->experts;
    double *bias = calloc(experts, sizeof *bias);
    if (!bias) return mr_fail(err, MR_ERR_MEMORY, "generate: no memory for %zu biases", experts);
    enum mr_status status = draw_biases(job->key, experts, bias, err);
    if (status == MR_OK) {
        struct outliers outliers = {hidden < OUTLIER_EVERY ? 1 : hidden / OUTLIER_EVERY, 0};
        outliers.size = sqrt(0.5 * (double)hidden / (double)outliers.count); /* 16 at 4096 */
        fill_hidden(job, outliers);
        fill_gate(job, outliers, bias);
        for (size_t e = 0; e < experts && job->out->bias; e++) job->out->bias[e] = (float)bias[e];
    }
    free(bias);
    return status;
}
