/* CUDA's threads on a CPU, as far as these kernels need them: each thread of a block is a fiber,
 * and runs until it meets a barrier of its warp or block. Blocks run one after the other. Which
 * thread goes next is drawn at random (fixed seed, another order at each launch), so that a missing
 * barrier shows. Launches run at once: dependent launches are not modelled, and neither is speed.
 */
#ifndef MOEREF_SIMT_H
#define MOEREF_SIMT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

struct mr_kernel;

#define __device__
#define __host__
#define __global__
#define __shared__      static
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct uint4 {
    uint32_t x, y, z, w;
};
struct float4 {
    float x, y, z, w;
};
struct ushort4 {
    uint16_t x, y, z, w;
};
struct int4 {
    int x, y, z, w;
};
typedef int cudaError_t;
enum { cudaSuccess = 0 };

struct mr_simt {
    dim3 thread, block, threads, blocks; /* of the thread that runs */
};
extern struct mr_simt mr_simt;
#define threadIdx (mr_simt.thread)
#define blockIdx  (mr_simt.block)
#define blockDim  (mr_simt.threads)
#define gridDim   (mr_simt.blocks)

enum mr_simt_op {
    MR_SIMT_XOR,
    MR_SIMT_FROM,
    MR_SIMT_MAX,
    MR_SIMT_MIN,
    MR_SIMT_PREFIX,
    MR_SIMT_BALLOT,
    MR_SIMT_MMA
};
/* All 32 threads of a warp come here with the same op. */
uint32_t mr_simt_warp(enum mr_simt_op op, uint32_t value, int argument);
void mr_simt_mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void mr_simt_block(void);
void mr_simt_run(dim3 blocks, int threads, void (*body)(void *), void *context);

static inline float __uint_as_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t __float_as_uint(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline int __popc(uint32_t x)
{
    return __builtin_popcount(x);
}
static inline uint32_t max(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}
static inline uint32_t min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}
static inline int warp_lane(void)
{
    return (int)(threadIdx.x & 31);
}
static inline float shuffle_xor(float x, int mask)
{
    return __uint_as_float(mr_simt_warp(MR_SIMT_XOR, __float_as_uint(x), mask));
}
static inline float shuffle(float x, int lane)
{
    return __uint_as_float(mr_simt_warp(MR_SIMT_FROM, __float_as_uint(x), lane));
}
static inline uint32_t warp_max(uint32_t x)
{
    return mr_simt_warp(MR_SIMT_MAX, x, 0);
}
static inline uint32_t warp_min(uint32_t x)
{
    return mr_simt_warp(MR_SIMT_MIN, x, 0);
}
static inline int warp_prefix(int x)
{
    return (int)mr_simt_warp(MR_SIMT_PREFIX, (uint32_t)x, 0);
}
static inline uint32_t warp_ballot(bool x)
{
    return mr_simt_warp(MR_SIMT_BALLOT, x, 0);
}
static inline void sync_warp(void)
{
    mr_simt_warp(MR_SIMT_BALLOT, 0, 0);
}
static inline void sync_block(void)
{
    mr_simt_block();
}
static inline void wait_for_producers(void)
{
}
static inline void let_consumers_start(void)
{
}
static inline void spin(int)
{
}
static inline uint4 load_constant(const uint4 *p)
{
    return *p;
}
static inline float load_shared_value(const float *p)
{
    return *p;
}
static inline void prefetch(const void *)
{
}
static inline void copy_chunk(uint4 *to, const uint4 *from, bool there)
{
    *to = there ? *from : uint4{0, 0, 0, 0};
}
static inline void close_copies(void)
{
}
template <int N> static inline void wait_copies(void)
{
}
static inline uint4 *dynamic_shared(void)
{
    static uint4 memory[227 * 1024 / 16];
    return memory;
}
/* Blocks run one after the other: the last one may find that it is, but none can wait. */
static inline uint32_t arrive(uint32_t *counter)
{
    return (*counter)++;
}
static inline void wait_until(const uint32_t *, uint32_t)
{
}
static inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    mr_simt_mma(c, a, b);
}
static inline uint32_t atomicOr(uint32_t *p, uint32_t v)
{
    uint32_t old = *p;
    *p |= v;
    return old;
}
static inline int atomicAdd(int *p, int v)
{
    int old = *p;
    *p += v;
    return old;
}

/* CUDA's, bit for bit, where ref/arith/cuda.h is; else the C library's. */
float mr_simt_sigmoid(float x), mr_simt_sqrt_softplus(float x), mr_simt_exp(float x);
static inline float sigmoid_score(float x)
{
    return mr_simt_sigmoid(x);
}
template <int V> static inline void sigmoid_scores(float (&x)[V])
{
    for (int i = 0; i < V; i++) x[i] = sigmoid_score(x[i]);
}
static inline float sqrt_softplus_score(float x)
{
    return mr_simt_sqrt_softplus(x);
}
static inline float exponential(float x)
{
    return mr_simt_exp(x);
}

/* The kernels of this build, for a test or a plugin: all that need no library of NVIDIA's. */
void mr_simt_announce(const struct mr_kernel *kernel);
#define MR_SIMT_ANNOUNCE(kernel)                                                                   \
    __attribute__((constructor)) static void mr_announce_##kernel(void)                            \
    {                                                                                              \
        mr_simt_announce(&kernel);                                                                 \
    }

#endif
