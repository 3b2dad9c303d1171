/* Formats, and random words of them. */
#include "mma_words.h"

const struct mma_format mma_bf16 = {"bf16", 16, 8, 7, 0, 127, 127};
const struct mma_format mma_fp16 = {"fp16", 16, 5, 10, 0, 15, 15};
const struct mma_format mma_tf32 = {"tf32", 32, 8, 10, 13, 127, 127};
const struct mma_format mma_e4m3 = {"e4m3", 8, 4, 3, 0, 7, 8};
const struct mma_format mma_e5m2 = {"e5m2", 8, 5, 2, 0, 15, 15};
const struct mma_format mma_fp32 = {"fp32", 32, 8, 23, 0, 127, 127};
const struct mma_format mma_s8 = {"s8", 8, 0, 8, 0, 0, 0};
const struct mma_format mma_s32 = {"s32", 32, 0, 32, 0, 0, 0};

const struct mma_set mma_sets[] = {
    {"bf16-fp32", &mma_bf16, &mma_bf16, &mma_fp32, 16},
    {"fp16-fp32", &mma_fp16, &mma_fp16, &mma_fp32, 16},
    {"fp16-fp16", &mma_fp16, &mma_fp16, &mma_fp16, 16},
    {"tf32-fp32", &mma_tf32, &mma_tf32, &mma_fp32, 8},
    {"e4m3-fp32", &mma_e4m3, &mma_e4m3, &mma_fp32, 32},
    {"e4m3-e5m2-fp32", &mma_e4m3, &mma_e5m2, &mma_fp32, 32},
    {"e5m2-e4m3-fp32", &mma_e5m2, &mma_e4m3, &mma_fp32, 32},
    {"e5m2-fp32", &mma_e5m2, &mma_e5m2, &mma_fp32, 32},
    {"e4m3-fp16", &mma_e4m3, &mma_e4m3, &mma_fp16, 32},
    {"e4m3-e5m2-fp16", &mma_e4m3, &mma_e5m2, &mma_fp16, 32},
    {"e5m2-e4m3-fp16", &mma_e5m2, &mma_e4m3, &mma_fp16, 32},
    {"e5m2-fp16", &mma_e5m2, &mma_e5m2, &mma_fp16, 32},
    {"s8-s32", &mma_s8, &mma_s8, &mma_s32, 32},
};
const int mma_set_count = sizeof mma_sets / sizeof *mma_sets;

uint32_t mma_draw(struct mma_source *s) /* splitmix64, upper half */
{
    uint64_t z = s->state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

int mma_between(struct mma_source *s, int lo, int hi)
{
    return lo + (int)(((uint64_t)mma_draw(s) * (uint64_t)(hi - lo + 1)) >> 32);
}

bool mma_one_in(struct mma_source *s, int n)
{
    return mma_between(s, 1, n) == 1;
}

int mma_emin(const struct mma_format *f)
{
    return 1 - f->bias;
}

uint32_t mma_sign(const struct mma_format *f, uint32_t sign)
{
    return (sign & 1) << (f->bits - 1);
}

uint32_t mma_word(struct mma_source *s, const struct mma_format *f, uint32_t sign, int e,
                  uint32_t fraction)
{
    uint32_t low = f->low ? mma_draw(s) >> (32 - f->low) : 0;
    uint32_t frac = fraction >> (32 - f->fraction);
    if (e > f->top) e = f->top;
    if (e < mma_emin(f)) {
        uint32_t full = 1u << f->fraction | frac;
        int down = mma_emin(f) - e;
        frac = down > f->fraction ? 0 : full >> down;
        return mma_sign(f, sign) | frac << f->low | low;
    }
    if (f == &mma_e4m3 && e == f->top && frac == 7) frac = 6; /* 7 is NaN there */
    return mma_sign(f, sign) | ((uint32_t)(e + f->bias) << f->fraction | frac) << f->low | low;
}

uint32_t mma_any(struct mma_source *s, const struct mma_format *f, int lo, int hi)
{
    uint32_t sign = mma_draw(s);
    int e = mma_between(s, lo, hi);
    uint32_t fraction = mma_draw(s);
    return mma_word(s, f, sign, e, fraction);
}

uint32_t mma_zero(struct mma_source *s, const struct mma_format *f)
{
    uint32_t sign = mma_draw(s);
    return mma_word(s, f, sign, mma_emin(f) - 40, 0);
}

uint32_t mma_integer(struct mma_source *s, const struct mma_format *f, int64_t v, int shift)
{
    uint64_t size = v < 0 ? (uint64_t)-v : (uint64_t)v;
    if (!size) return mma_word(s, f, 0, mma_emin(f) - 40, 0);
    int top = 63 - __builtin_clzll(size);
    return mma_word(s, f, v < 0, top + shift, (uint32_t)(size << (63 - top) << 1 >> 32));
}

uint32_t mma_normal(struct mma_source *s, const struct mma_format *f, int shift)
{
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) sum += mma_draw(s) >> 16;
    return mma_integer(s, f, sum - 2 * 65535, shift - 15);
}

uint32_t mma_infinity(struct mma_source *s, const struct mma_format *f)
{
    uint32_t sign = mma_draw(s);
    if (f == &mma_e4m3) return mma_sign(f, sign) | 0x7e; /* has none: its largest value */
    uint32_t low = f->low && mma_one_in(s, 2) ? mma_draw(s) >> (32 - f->low) : 0;
    return mma_sign(f, sign) | ((1u << f->exponent) - 1) << (f->fraction + f->low) | low;
}

uint32_t mma_nan(struct mma_source *s, const struct mma_format *f)
{
    uint32_t sign = mma_draw(s);
    uint32_t payload = mma_draw(s) >> (32 - f->fraction);
    if (f == &mma_e4m3) return mma_sign(f, sign) | 0x7f;
    if (!payload) payload = 1;
    uint32_t low = f->low ? mma_draw(s) >> (32 - f->low) : 0;
    return mma_sign(f, sign) | (((1u << f->exponent) - 1) << f->fraction | payload) << f->low | low;
}

int64_t mma_whole(const struct mma_format *f, uint32_t w, int *shift)
{
    uint32_t frac = w >> f->low & ((1u << f->fraction) - 1);
    int e = (int)(w >> (f->low + f->fraction) & ((1u << f->exponent) - 1));
    *shift = (e ? e : 1) - f->bias - f->fraction;
    int64_t size = frac | (e ? 1u << f->fraction : 0);
    return w >> (f->bits - 1) & 1 ? -size : size;
}
