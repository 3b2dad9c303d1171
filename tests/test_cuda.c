/* CUDA's scalar functions against what an H200 answered: all inputs of one-argument functions, by
 * checksums (a sample of blocks unless MOEREF_LONG is set), pairs for quotients, PyTorch's and
 * Triton's functions, softmax of rows. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gpu/sweep/rows.h"
#include "../ref/num/num.h"
#include "support/cuda_recorded.h"

static uint64_t sums[MR_CUDA_COUNT][CUDA_BLOCKS];

static void load_sums(void)
{
    const struct mr_safetensors *sweep = cuda_recording("sweep.safetensors");
    const struct mr_safetensors *torch = cuda_recording("torch.safetensors");
    for (int id = 0; id < MR_CUDA_COUNT; id++) {
        const char *name = mr_cuda_functions[id].name;
        ck_assert_msg(cuda_recorded(sweep, name, sums[id], CUDA_BLOCKS) ||
                          cuda_recorded(torch, name, sums[id], CUDA_BLOCKS),
                      "%s: no recording", name);
    }
}

/* Every function, each with blocks of its own. */
START_TEST(validate_all_inputs)
{
    static uint32_t blocks[CUDA_BLOCKS];
    load_sums();
    int bad = 0, first_id = 0;
    uint32_t first_block = 0;
    for (int id = 0; id < MR_CUDA_COUNT; id++) {
        int n = cuda_choose_blocks(blocks, 2, 77 + (uint64_t)id);
#pragma omp parallel for schedule(dynamic)
        for (int i = 0; i < n; i++) {
            if (cuda_block((enum mr_cuda_id)id, blocks[i]) == sums[id][blocks[i]]) continue;
#pragma omp critical
            if (bad++ == 0) first_id = id, first_block = blocks[i];
        }
    }
    ck_assert_msg(bad == 0, "%d blocks differ, the first is %s, block %#x", bad,
                  mr_cuda_functions[first_id].name, first_block);
}
END_TEST

START_TEST(validate_quotients)
{
    static uint64_t recorded[CUDA_BLOCKS];
    static uint32_t sets[CUDA_BLOCKS];
    const struct mr_safetensors *sweep = cuda_recording("sweep.safetensors");
    for (int how = 0; how < MR_DIV_COUNT; how++) {
        ck_assert(cuda_recorded(sweep, mr_cuda_quotients[how], recorded, CUDA_BLOCKS));
        int n = CUDA_BLOCKS, bad = 0;
        if (!getenv("MOEREF_LONG")) {
            /* Of each of the three kinds of set, and both of the third. */
            n = 12;
            for (int i = 0; i < n; i++) {
                static const uint32_t from[4] = {0, 1024, 2048, 2049};
                uint32_t step = i % 4 < 2 ? 331 : 682;
                sets[i] =
                    from[i % 4] + (uint32_t)(i / 4) * step + (uint32_t)(how % 2) * (i % 4 < 2);
            }
        } else {
            for (int i = 0; i < n; i++) sets[i] = (uint32_t)i;
        }
#pragma omp parallel for schedule(dynamic) reduction(+ : bad)
        for (int i = 0; i < n; i++)
            bad += cuda_pair_block((enum mr_cuda_quotient)how, sets[i]) != recorded[sets[i]];
        ck_assert_msg(bad == 0, "%s: %d of %d sets differ", mr_cuda_quotients[how], bad, n);
    }
}
END_TEST

/* What PyTorch and Triton call has the same outputs on all inputs: their checksums add up to the
 * same. */
START_TEST(validate_torch_and_triton_totals)
{
    static const struct {
        const char *torch;
        enum mr_cuda_id id;
    } same[] = {
        {"torch.sigmoid", MR_CUDA_SIGMOID},
        {"torch.exp", MR_CUDA_EXPF},
        {"torch.log", MR_CUDA_LOGF},
        {"torch.log1p", MR_CUDA_LOG1PF},
        {"torch.log2", MR_CUDA_LOG2F},
        {"torch.exp2", MR_CUDA_EX2},
        {"torch.tanh", MR_CUDA_TANHF},
        {"torch.softplus", MR_CUDA_SOFTPLUS_TORCH},
        {"torch.softplus.sqrt", MR_CUDA_ROOT_TORCH},
        {"triton.sigmoid", MR_CUDA_SIGMOID_TRITON},
        {"triton.exp", MR_CUDA_FAST_EXPF},
        {"triton.log", MR_CUDA_LOGF},
    };
    const struct mr_safetensors *torch = cuda_recording("torch.safetensors");
    load_sums();
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        uint64_t total = 0, recorded;
        for (int b = 0; b < CUDA_BLOCKS; b++) total += sums[same[i].id][b];
        ck_assert_msg(cuda_recorded(torch, same[i].torch, &recorded, 1), "%s", same[i].torch);
        ck_assert_msg(total == recorded, "%s is not %s", same[i].torch,
                      mr_cuda_functions[same[i].id].name);
    }
}
END_TEST

/* bf16 and fp16: widened, computed in binary32, rounded once. */
static const struct {
    const char *name;
    float (*decode)(uint16_t);
    uint16_t (*encode)(double, enum mr_rounding, enum mr_overflow);
} halves[] = {{"bfloat16", mr_bf16_decode, mr_bf16_encode},
              {"float16", mr_fp16_decode, mr_fp16_encode}};

static uint32_t narrowed(int type, float y)
{
    return halves[type].encode(y, MR_RNE, MR_OVERFLOW_IEEE);
}

START_TEST(validate_torch_sigmoid_of_halves)
{
    static float x[65536], y[65536];
    static uint32_t words[65536];
    const struct mr_safetensors *torch = cuda_recording("torch.safetensors");
    for (int type = 0; type < 2; type++) {
        char name[64];
        uint64_t recorded[64];
        for (int i = 0; i < 65536; i++) x[i] = halves[type].decode((uint16_t)i);
        mr_cuda_apply(MR_CUDA_SIGMOID, x, 65536, y);
        for (int i = 0; i < 65536; i++) words[i] = narrowed(type, y[i]);
        snprintf(name, sizeof name, "torch.sigmoid.%s", halves[type].name);
        ck_assert(cuda_recorded(torch, name, recorded, 64));
        for (int b = 0; b < 64; b++)
            ck_assert_msg(mr_cuda_checksum(words + b * 1024, 1024) == recorded[b],
                          "%s, codes from %#x", name, b * 1024);
    }
}
END_TEST

/* type: 0 and 1 as halves, 2 fp32, 3 bf16 to fp32. */
static uint64_t softmax_checksum(const struct mr_cuda_softmax *form, int type, uint32_t kind,
                                 uint32_t columns)
{
    uint32_t *words = malloc((size_t)ROWS * columns * sizeof *words);
    float x[512], y[512];
    if (!words) abort();
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t c = 0; c < columns; c++) {
            x[c] = row_value(kind, r, c);
            if (type != 2) x[c] = halves[type % 3].decode((uint16_t)narrowed(type % 3, x[c]));
        }
        mr_cuda_softmax_row(form, x, columns, y);
        for (uint32_t c = 0; c < columns; c++) {
            uint32_t word;
            memcpy(&word, &y[c], sizeof word);
            words[r * columns + c] = type < 2 ? narrowed(type, y[c]) : word;
        }
    }
    uint64_t sum = mr_cuda_checksum(words, (size_t)ROWS * columns);
    free(words);
    return sum;
}

START_TEST(validate_softmax_torch)
{
    static const uint32_t sizes[] = {8, 64, 128, 256, 288, 384, 512};
    static const char *const types[] = {"bfloat16", "float16", "float32", "bfloat16.float32"};
    const struct mr_safetensors *torch = cuda_recording("torch.safetensors");
    int bad = 0;
    char worst[64] = "";
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < 7 * ROW_KINDS * 4; i++) {
        uint32_t columns = sizes[6 - i / (ROW_KINDS * 4)], kind = (uint32_t)(i / 4 % ROW_KINDS);
        int type = i % 4;
        /* Narrow types are slow to encode: the largest and a few others unless asked for all. */
        if (type < 2 && kind != columns / 64 % 4 && !getenv("MOEREF_LONG")) continue;
        char name[64];
        uint64_t recorded = 0;
        struct mr_cuda_softmax form = mr_cuda_softmax_torch(columns);
        snprintf(name, sizeof name, "torch.softmax.%u.%u.%s", columns, kind, types[type]);
        if (cuda_recorded(torch, name, &recorded, 1) &&
            softmax_checksum(&form, type, kind, columns) == recorded)
            continue;
#pragma omp critical
        if (bad++ == 0) strcpy(worst, name);
    }
    ck_assert_msg(bad == 0, "%d differ, one is %s", bad, worst);
}
END_TEST

START_TEST(validate_softmax_gating)
{
    static const uint32_t sizes[] = {8, 64, 128, 256, 384, 512};
    const struct mr_safetensors *file = cuda_recording("gating.safetensors");
    int bad = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : bad)
    for (int i = 0; i < 6 * ROW_KINDS; i++) {
        uint32_t columns = sizes[i / ROW_KINDS], kind = (uint32_t)(i % ROW_KINDS);
        struct mr_cuda_softmax form = mr_cuda_softmax_gating(columns);
        char name[64];
        uint64_t recorded = 0;
        snprintf(name, sizeof name, "gating.%u.%u", columns, kind);
        bad += !cuda_recorded(file, name, &recorded, 1) ||
               softmax_checksum(&form, 2, kind, columns) != recorded;
    }
    ck_assert_int_eq(bad, 0);
}
END_TEST

/* The sum's order is what the checksums see: other orders differ. */
START_TEST(verify_softmax_orders_differ)
{
    struct mr_cuda_softmax torch = mr_cuda_softmax_torch(256), other = torch;
    uint64_t sum = softmax_checksum(&torch, 2, 0, 256);
    other.threads = 16;
    ck_assert(softmax_checksum(&other, 2, 0, 256) != sum);
    other = torch;
    other.vector = 4;
    ck_assert(softmax_checksum(&other, 2, 0, 256) != sum);
    other = torch;
    other.reciprocal = true;
    ck_assert(softmax_checksum(&other, 2, 0, 256) != sum);
}
END_TEST

Suite *suite_cuda(void);

Suite *suite_cuda(void)
{
    Suite *s = suite_create("cuda");
    TCase *c = tcase_create("cuda");
    tcase_set_timeout(c, getenv("MOEREF_LONG") ? 7200 : 120);
    tcase_add_test(c, validate_all_inputs);
    tcase_add_test(c, validate_quotients);
    tcase_add_test(c, validate_torch_and_triton_totals);
    tcase_add_test(c, validate_torch_sigmoid_of_halves);
    tcase_add_test(c, validate_softmax_torch);
    tcase_add_test(c, validate_softmax_gating);
    tcase_add_test(c, verify_softmax_orders_differ);
    suite_add_tcase(s, c);
    return s;
}
