#include "cuda_recorded.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../gpu/sweep/pairs.h"
#include "../../ref/io/safetensors.h"
#include "mpfr_oracle.h"

const struct mr_safetensors *cuda_recording(const char *name)
{
    static struct mr_safetensors *kept[8]; /* for as long as the process lives */
    static int count;
    char path[256];
    struct mr_error err;
    snprintf(path, sizeof path, "data/cuda-h200/%s", name);
    for (int i = 0; i < count; i++)
        if (!strcmp(mr_safetensors_path(kept[i]), path)) return kept[i];
    ck_assert_int_lt(count, 8);
    ck_assert_msg(mr_safetensors_open(path, &kept[count], &err) == MR_OK, "%s", err.text);
    return kept[count++];
}

bool cuda_recorded(const struct mr_safetensors *file, const char *tensor, uint64_t *sums, size_t n)
{
    struct mr_tensor t;
    if (!mr_safetensors_find(file, tensor, &t)) return false;
    ck_assert_msg(t.dtype == MR_U64 && t.bytes == n * sizeof *sums, "%s: its shape", tensor);
    memcpy(sums, t.data, n * sizeof *sums);
    return true;
}

uint64_t cuda_block(enum mr_cuda_id id, uint32_t block)
{
    enum { PART = 1 << 12 }; /* stays in the cache */
    uint32_t *y = malloc(CUDA_BLOCK * sizeof *y), x[PART];
    if (!y) abort();
    for (uint32_t i = 0; i < CUDA_BLOCK; i += PART) {
        for (uint32_t k = 0; k < PART; k++) x[k] = (block << 20) + i + k;
        mr_cuda_apply(id, (const float *)x, PART, (float *)(y + i));
    }
    uint64_t sum = mr_cuda_checksum(y, CUDA_BLOCK);
    free(y);
    return sum;
}

uint64_t cuda_pair_block(enum mr_cuda_quotient how, uint32_t set)
{
    enum { PART = 1 << 12 };
    uint32_t *y = malloc(CUDA_BLOCK * sizeof *y), a[PART], b[PART];
    if (!y) abort();
    for (uint32_t i = 0; i < CUDA_BLOCK; i += PART) {
        for (uint32_t k = 0; k < PART; k++) {
            struct pair_words p = pair_of(set, i + k);
            a[k] = p.a;
            b[k] = p.b;
        }
        mr_cuda_divide(how, (const float *)a, (const float *)b, PART, (float *)(y + i));
    }
    uint64_t sum = mr_cuda_checksum(y, CUDA_BLOCK);
    free(y);
    return sum;
}

int cuda_choose_blocks(uint32_t *blocks, int random, uint64_t seed)
{
    static const uint32_t edges[] = {0x000, 0x008, 0x3f7, 0x3f8, 0x418, 0x41a, 0x42b, 0x7f7,
                                     0x7f8, 0x800, 0xbf7, 0xbf8, 0xc18, 0xc2a, 0xc2c, 0xff8};
    int n = 0;
    if (getenv("MOEREF_LONG")) {
        for (; n < CUDA_BLOCKS; n++) blocks[n] = (uint32_t)n;
        return n;
    }
    for (; n < (int)(sizeof edges / sizeof *edges); n++) blocks[n] = edges[n];
    for (int i = 0; i < random; i++) blocks[n++] = (uint32_t)(oracle_random(&seed) % CUDA_BLOCKS);
    return n;
}
