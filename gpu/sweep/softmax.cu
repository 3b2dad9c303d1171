/* Softmax of a row in the form of the topkGating kernels (vLLM, SGLang topk_softmax_kernels.cu), our
 * own code: thread t of THREADS holds the VECTOR consecutive columns from (i THREADS + t) VECTOR,
 * adds its exponentials in that order, the threads exchange by xor, one reciprocal, products. Writes
 * checksums of the outputs on the rows of rows.h.
 *
 *     softmax OUT     OUT/gating.safetensors: "gating.E.KIND", U64 [1] each */
#include <cstdio>
#include <string>

#include "rows.h"

template <int COLUMNS, int THREADS, int VECTOR>
static __global__ void gating(const float *x, float *y)
{
    constexpr int COUNT = COLUMNS / THREADS;
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / THREADS, t = threadIdx.x % THREADS;
    if (row >= ROWS) return;
    float chunk[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        chunk[i] = x[row * COLUMNS + (i / VECTOR * THREADS + t) * VECTOR + i % VECTOR];
    float most = chunk[0];
#pragma unroll
    for (int i = 1; i < COUNT; i++) most = fmaxf(most, chunk[i]);
#pragma unroll
    for (int mask = THREADS / 2; mask > 0; mask /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, mask, THREADS));
    float sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        chunk[i] = expf(chunk[i] - most);
        sum += chunk[i];
    }
#pragma unroll
    for (int mask = THREADS / 2; mask > 0; mask /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, mask, THREADS);
    const float reciprocal = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        y[row * COLUMNS + (i / VECTOR * THREADS + t) * VECTOR + i % VECTOR] = chunk[i] * reciprocal;
}

static uint64_t checksum(const float *y, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        __builtin_memcpy(&word, &y[i], 4);
        uint64_t z = ((uint64_t)i << 32 | word) * 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 32)) * 0xbf58476d1ce4e5b9ull;
        sum += z ^ (z >> 29);
    }
    return sum;
}

template <int COLUMNS, int THREADS, int VECTOR>
static void record(std::string &header, std::string &data, float *x, float *y)
{
    for (int kind = 0; kind < ROW_KINDS; kind++) {
        for (int row = 0; row < ROWS; row++)
            for (int c = 0; c < COLUMNS; c++) x[row * COLUMNS + c] = row_value(kind, row, c);
        float *dx, *dy;
        size_t bytes = sizeof(float) * ROWS * COLUMNS;
        if (cudaMalloc(&dx, bytes) || cudaMalloc(&dy, bytes) ||
            cudaMemcpy(dx, x, bytes, cudaMemcpyHostToDevice))
            exit(1);
        gating<COLUMNS, THREADS, VECTOR><<<ROWS * THREADS / 256 + 1, 256>>>(dx, dy);
        if (cudaMemcpy(y, dy, bytes, cudaMemcpyDeviceToHost) || cudaFree(dx) || cudaFree(dy)) exit(1);
        uint64_t sum = checksum(y, (size_t)ROWS * COLUMNS);
        char text[200];
        snprintf(text, sizeof text,
                 ",\"gating.%d.%d\":{\"dtype\":\"U64\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                 COLUMNS, kind, data.size(), data.size() + 8);
        header += text;
        data.append((const char *)&sum, 8);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    float *x = new float[ROWS * 512], *y = new float[ROWS * 512];
    std::string header = "{\"__metadata__\":{\"program\":\"gpu/sweep/softmax.cu\"}", data;
    record<8, 2, 4>(header, data, x, y);
    record<64, 16, 4>(header, data, x, y);
    record<128, 32, 4>(header, data, x, y);
    record<256, 32, 4>(header, data, x, y);
    record<384, 32, 2>(header, data, x, y);
    record<512, 32, 4>(header, data, x, y);
    header += "}";
    while (header.size() % 8) header += ' ';
    uint64_t bytes = header.size();
    FILE *file = fopen((std::string(argv[1]) + "/gating.safetensors").c_str(), "wb");
    if (!file) return 4;
    fwrite(&bytes, 8, 1, file);
    fwrite(header.data(), 1, bytes, file);
    fwrite(data.data(), 1, data.size(), file);
    return fclose(file) != 0;
}
