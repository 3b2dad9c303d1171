/* The swept functions under one set of flags: compiled once with -DFLAVOUR=0, with -ftz=true
 * -DFLAVOUR=1, and with -use_fast_math -DFLAVOUR=2. */
#include "functions.h"
#include "kernels.h"
#include "pairs.h"

#define PTX(name, instruction)                                                                     \
    static __device__ __forceinline__ float name(float x)                                          \
    {                                                                                              \
        float y;                                                                                   \
        asm(instruction " %0, %1;" : "=f"(y) : "f"(x));                                            \
        return y;                                                                                  \
    }
#define PTX2(name, instruction)                                                                    \
    static __device__ __forceinline__ float name(float a, float b)                                 \
    {                                                                                              \
        float y;                                                                                   \
        asm(instruction " %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));                                \
        return y;                                                                                  \
    }
#if FLAVOUR == 0
PTX(ptx_ex2, "ex2.approx.f32")
PTX(ptx_ex2_ftz, "ex2.approx.ftz.f32")
PTX(ptx_rcp, "rcp.approx.f32")
PTX(ptx_rcp_ftz, "rcp.approx.ftz.f32")
PTX(ptx_rsqrt, "rsqrt.approx.f32")
PTX(ptx_rsqrt_ftz, "rsqrt.approx.ftz.f32")
PTX(ptx_sqrt, "sqrt.approx.f32")
PTX(ptx_sqrt_ftz, "sqrt.approx.ftz.f32")
PTX(ptx_lg2, "lg2.approx.f32")
PTX(ptx_lg2_ftz, "lg2.approx.ftz.f32")
PTX(ptx_tanh, "tanh.approx.f32")
PTX2(ptx_div_full, "div.full.f32")
PTX2(ptx_div_full_ftz, "div.full.ftz.f32")
PTX2(ptx_div_approx, "div.approx.f32")
PTX2(ptx_div_approx_ftz, "div.approx.ftz.f32")
#endif

static __device__ __forceinline__ uint64_t term(uint32_t i, uint32_t word)
{
    uint64_t z = ((uint64_t)i << 32 | word) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 32)) * 0xbf58476d1ce4e5b9ull;
    return z ^ (z >> 29);
}

/* Block b of the grid sums set b. */
template <class F> static __global__ void __launch_bounds__(256) sums_kernel(unsigned long long *sums)
{
    __shared__ unsigned long long total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    uint64_t sum = 0;
    for (uint32_t i = threadIdx.x; i < 1u << BLOCK_BITS; i += 256)
        sum += term(i, __float_as_uint(F::at(blockIdx.x, i)));
    atomicAdd(&total, (unsigned long long)sum);
    __syncthreads();
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

template <class F> static __global__ void values_kernel(uint32_t set, uint32_t first, uint32_t n, uint32_t *out)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __float_as_uint(F::at(set + ((first + i) >> BLOCK_BITS), (first + i) & ((1u << BLOCK_BITS) - 1)));
}

template <class F> static void launch_sums(uint64_t *sums)
{
    sums_kernel<F><<<BLOCKS, 256>>>((unsigned long long *)sums);
}

template <class F> static void launch_values(uint32_t first, uint32_t n, uint32_t *out)
{
    values_kernel<F><<<(n + 255) / 256, 256>>>(first >> BLOCK_BITS, first & ((1u << BLOCK_BITS) - 1), n, out);
}

template <int LINE> struct function; /* by the line of its place in the list */
#define DEFINE(id, expression)                                                                     \
    template <> struct function<id> {                                                              \
        static __device__ __forceinline__ float at(uint32_t set, uint32_t i)                       \
        {                                                                                          \
            float x = __uint_as_float(set << BLOCK_BITS | i);                                      \
            return expression;                                                                     \
        }                                                                                          \
    };
enum { BASE = __COUNTER__ + 1 };
#define F(label, model, expression) DEFINE(__COUNTER__ - BASE, expression)
FUNCTIONS(F)
#undef F
enum { BASE2 = __COUNTER__ + 1 };
#define F(label, model, expression)                                                                \
    {label, model, launch_sums<function<__COUNTER__ - BASE2>>, NULL},
static struct swept functions[] = {FUNCTIONS(F)};
#undef F
template <int N> static void fill_values()
{
    functions[N].values = launch_values<function<N>>;
    if constexpr (N > 0) fill_values<N - 1>();
}

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
struct swept_list PASTE(sweep_functions_, FLAVOUR)(void)
{
    enum { COUNT = sizeof functions / sizeof *functions };
    fill_values<COUNT - 1>();
    return {functions, COUNT};
}

#if FLAVOUR == 0
#define QUOTIENT(name)                                                                             \
    struct of_##name {                                                                             \
        static __device__ __forceinline__ float at(uint32_t set, uint32_t i)                       \
        {                                                                                          \
            struct pair_words p = pair_of(set, i);                                                 \
            return ptx_##name(__uint_as_float(p.a), __uint_as_float(p.b));                         \
        }                                                                                          \
    };                                                                                             \
    static void values_##name(uint32_t set, uint32_t *out)                                         \
    {                                                                                              \
        launch_values<of_##name>(set << BLOCK_BITS, 1u << BLOCK_BITS, out);                        \
    }
QUOTIENT(div_full)
QUOTIENT(div_full_ftz)
QUOTIENT(div_approx)
QUOTIENT(div_approx_ftz)
const struct swept2 sweep_quotients[4] = {
    {"div.full", launch_sums<of_div_full>, values_div_full},
    {"div.full.ftz", launch_sums<of_div_full_ftz>, values_div_full_ftz},
    {"div.approx", launch_sums<of_div_approx>, values_div_approx},
    {"div.approx.ftz", launch_sums<of_div_approx_ftz>, values_div_approx_ftz},
};
#endif
