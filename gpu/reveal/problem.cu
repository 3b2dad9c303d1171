#include "problem.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

void check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "reveal: %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

void check(enum mr_status s, const struct mr_error &err)
{
    if (s == MR_OK) return;
    fprintf(stderr, "reveal: %s\n", err.text);
    exit(mr_status_exit(s));
}

template <class T> static T *device(size_t n)
{
    T *p;
    check(cudaMalloc(&p, n * sizeof(T)), "memory");
    return p;
}

static __global__ void narrow_kernel(const float *in, __nv_bfloat16 *out, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        out[i] = __float2bfloat16_rn(in[i]);
}

static __global__ void widen_kernel(const __nv_bfloat16 *in, float *out, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        out[i] = __bfloat162float(in[i]);
}

/* Near N(0, 1): four uniform numbers of a splitmix64 by place. */
static __global__ void fill_kernel(float *out, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        z ^= z >> 31;
        int sum = (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) +
                  (int)(z >> 48) - 2 * 65535;
        out[i] = __bfloat162float(__float2bfloat16_rn((float)sum * 0x1p-15f));
    }
}

void narrow(const float *in, __nv_bfloat16 *out, size_t n)
{
    narrow_kernel<<<1024, 256>>>(in, out, n);
}

void widen(const __nv_bfloat16 *in, float *out, size_t n)
{
    widen_kernel<<<1024, 256>>>(in, out, n);
}

void fill(float *out, size_t n)
{
    fill_kernel<<<1024, 256>>>(out, n);
}

problem make_problem(int n, int k)
{
    size_t a = (size_t)MOST_ROWS * k, w = (size_t)n * k, d = (size_t)MOST_ROWS * n;
    return {n, k, device<float>(a), device<float>(w), device<float>(d),
            device<__nv_bfloat16>(a), device<__nv_bfloat16>(w), device<__nv_bfloat16>(d)};
}

void free_problem(const problem &p)
{
    for (void *x : {(void *)p.a32, (void *)p.w32, (void *)p.d32, (void *)p.a16, (void *)p.w16,
                    (void *)p.d16})
        cudaFree(x);
}

void run(const problem &p, enum gemm_kind kind, int rows)
{
    size_t d = (size_t)rows * p.n;
    check(cudaMemset(kind == GEMM_BF16_BF16 ? (void *)p.d16 : (void *)p.d32, 0xff,
                     d * (kind == GEMM_BF16_BF16 ? 2 : 4)), "poison");
    if (kind == GEMM_FP32) gemm(kind, rows, p.n, p.k, p.a32, p.w32, p.d32);
    else if (kind == GEMM_BF16_FP32) gemm(kind, rows, p.n, p.k, p.a16, p.w16, p.d32);
    else {
        gemm(kind, rows, p.n, p.k, p.a16, p.w16, p.d16);
        widen(p.d16, p.d32, d);
    }
    check(cudaGetLastError(), "launch");
}

static std::string line_of(const char *command)
{
    char text[256] = "unknown";
    FILE *p = popen(command, "r");
    if (p && !fgets(text, sizeof text, p)) strcpy(text, "unknown");
    if (p) pclose(p);
    text[strcspn(text, "\n")] = 0;
    return text;
}

void write_metadata(struct mr_writer *w)
{
    struct mr_error err;
    cudaDeviceProp prop;
    int runtime;
    check(cudaGetDeviceProperties(&prop, 0), "properties");
    check(cudaRuntimeGetVersion(&runtime), "version");
    std::string cuda = std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10);
    std::string driver = line_of("nvidia-smi --query-gpu=driver_version --format=csv,noheader");
    std::string cublas = std::to_string(gemm_version());
    const char *items[][2] = {{"program", "moeref gpu/reveal 1"}, {"gpu", prop.name},
                              {"driver", driver.c_str()}, {"cuda", cuda.c_str()},
                              {"cublas", cublas.c_str()}};
    for (auto &i : items) check(mr_writer_metadata(w, i[0], i[1], &err), err);
}

