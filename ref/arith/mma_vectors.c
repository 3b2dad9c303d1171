#include "mma_vectors.h"

#include <stdio.h>
#include <string.h>

#include "../num/bits.h"
#include "../num/num.h"

static const struct {
    const char *gpus, *arch;
} known[] = {
    {" V100 ", "volta"},       {" A100 A2 ", "ampere"}, {" Ada L40S ", "ada"},
    {" H100 H200 ", "hopper"}, {" B200 ", "blackwell"},
};
enum { KNOWN = sizeof known / sizeof *known };

static const char *architecture(const char *gpu)
{
    char word[16];
    int n = snprintf(word, sizeof word, " %s ", gpu);
    for (size_t i = 0; i < KNOWN && n < (int)sizeof word; i++)
        if (n > 2 && !strchr(gpu, ' ') && strstr(known[i].gpus, word)) return known[i].arch;
    return NULL;
}

/* All by mma.sync, so with the row of that unit where there is one; but for fp32 results of 8-bit
 * types on Hopper, which are of wgmma with c = 0. */
enum mr_status mr_mma_group_row(const struct mr_mma_group *group, const struct mr_mma **mma,
                                bool *c_is_zero, struct mr_error *err)
{
    const char *arch = architecture(group->gpu), *type = NULL;
    if (!arch)
        return mr_fail(err, MR_ERR_UNSUPPORTED,
                       "%s.%s: unknown GPU (known: V100 A100 A2 Ada L40S H100 H200 B200)",
                       group->gpu, group->format);
    static const char *const formats[][2] = {
        {"bf16", "bf16"}, {"fp16", "fp16"}, {"tf32", "tf32"}, {"E4M3", "e4m3"}, {"E5M2", "e5m2"}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(group->format, formats[i][0])) type = formats[i][1];
    bool half = !strcmp(group->output, "fp16");
    *mma = NULL;
    *c_is_zero = type && type[0] == 'e' && !half && !strcmp(arch, "hopper");
    for (int mma_unit = !*c_is_zero; type && !*mma && mma_unit >= 0; mma_unit--) {
        char name[64];
        int n = snprintf(name, sizeof name, "%s%s-%s%s", arch, mma_unit ? "-mma" : "", type,
                         half ? "-fp16" : "");
        *mma = mr_mma_find(name, (size_t)n);
    }
    if (*mma && (half || !strcmp(group->output, "fp32"))) return MR_OK;
    return mr_fail(err, MR_ERR_UNSUPPORTED,
                   "%s.%s.d_%s: unknown format or output (known: d_fp32 of bf16 fp16 tf32 E4M3 "
                   "E5M2, d_fp16 of fp16 E4M3 E5M2, as far as the GPU has them)",
                   group->gpu, group->format, group->output);
}

bool mr_mma_stored(const char *format, enum mr_dtype dtype)
{
    static const struct {
        const char *format;
        enum mr_dtype dtype;
    } own[] = {{"bf16", MR_BF16}, {"fp16", MR_F16}, {"E4M3", MR_F8_E4M3}, {"E5M2", MR_F8_E5M2}};
    bool found = dtype == MR_F32;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        found |= own[i].dtype == dtype && !strcmp(own[i].format, format);
    return found;
}

void mr_mma_words(const void *stored, enum mr_dtype dtype, size_t n, uint32_t *words)
{
    const uint8_t *bytes = stored;
    if (dtype == MR_F32) memcpy(words, stored, 4 * n);
    for (size_t i = 0; i < n && dtype != MR_F32; i++) {
        uint16_t half = 0;
        if (dtype == MR_BF16 || dtype == MR_F16) memcpy(&half, bytes + 2 * i, 2);
        float value = dtype == MR_BF16       ? mr_bf16_decode(half)
                      : dtype == MR_F16      ? mr_fp16_decode(half)
                      : dtype == MR_F8_E4M3  ? mr_e4m3_decode(bytes[i])
                                             : mr_e5m2_decode(bytes[i]);
        memcpy(&words[i], &value, 4);
    }
}

static uint32_t word_at(const void *words, size_t i)
{
    uint32_t word;
    memcpy(&word, (const unsigned char *)words + 4 * i, sizeof word);
    return word;
}

static bool encode(enum mr_mma_type type, uint32_t word, uint32_t *code)
{
    bool exact = true;
    *code = type == MR_MMA_TF32 ? word : mr_mma_encode_exact(type, word, &exact);
    return exact;
}

static enum mr_status not_exact(const struct mr_mma_group *g, const char *what, size_t row,
                                size_t column, enum mr_mma_type type, uint32_t word,
                                struct mr_error *err)
{
    return mr_fail(
        err, MR_ERR_VALUE, "%s.%s.%s: row %zu, column %zu: %.9g (0x%08x) is no %s number", g->gpu,
        g->format, what, row, column, (double)f32_from(word), word, mr_mma_type_name(type));
}

static enum mr_status operand_row(const struct mr_mma_group *g, const char *what, const void *words,
                                  size_t row, enum mr_mma_type type, uint32_t *codes,
                                  struct mr_error *err)
{
    for (size_t i = 0; i < g->k; i++) {
        uint32_t word = word_at(words, row * g->k + i);
        if (!encode(type, word, &codes[i])) return not_exact(g, what, row, i, type, word, err);
    }
    return MR_OK;
}

enum mr_status mr_mma_group_replay_as(const struct mr_mma_group *g, const struct mr_mma *mma,
                                      bool c_is_zero, struct mr_mma_replayed *out,
                                      struct mr_error *err)
{
    enum { MOST = 1024 };
    uint32_t a[MOST], b[MOST];
    *out = (struct mr_mma_replayed){.mma = mma, .c_is_zero = c_is_zero};
    if (g->k > MOST)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s.%s: %zu columns, at most %d are served", g->gpu,
                       g->format, g->k, MOST);
    if (mma->scale_block)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s.%s: recordings have no scales, %s needs some",
                       g->gpu, g->format, mma->name);
    bool half = mma->accumulator == MR_MMA_FP16;
    for (size_t row = 0; row < g->rows; row++) {
        enum mr_status status = operand_row(g, "a", g->a, row, mma->a, a, err);
        if (!status) status = operand_row(g, "b", g->b, row, mma->b, b, err);
        if (status) return status;
        uint32_t c = g->c && !c_is_zero ? word_at(g->c, row) : 0;
        if (half) c = mr_fp16_encode((double)f32_from(c), MR_RNE, MR_OVERFLOW_IEEE);
        uint32_t d = word_at(g->d, row), expected;
        if (!encode(mma->accumulator, d, &expected))
            return not_exact(g, half ? "d_fp16" : "d_fp32", row, 0, mma->accumulator, d, err);
        uint32_t computed = mr_mma_step(mma, a, b, g->k, c, NULL);
        out->checked++;
        if (computed == expected) continue;
        if (out->mismatches++ == 0) {
            out->first = row;
            out->expected = expected;
            out->computed = computed;
        }
    }
    return MR_OK;
}

enum mr_status mr_mma_group_replay(const struct mr_mma_group *group, struct mr_mma_replayed *out,
                                   struct mr_error *err)
{
    const struct mr_mma *mma;
    bool c_is_zero;
    enum mr_status status = mr_mma_group_row(group, &mma, &c_is_zero, err);
    return status ? status : mr_mma_group_replay_as(group, mma, c_is_zero, out, err);
}
