/* What kernels use of the GPU, in one place: warp operations, dependent launches, loads. With
 * MR_SIMT the same kernels are host code, their threads run by simt.h, so that everything but speed
 * can be tested without a GPU.
 *
 * Programmatic dependent launch, the rules that every kernel here keeps: nothing that an earlier
 * kernel makes is read, and nothing is written, before wait_for_producers(); and every kernel of a
 * chain waits before it ends, since a grid counts as done for its consumers' wait only when it has
 * ended, so that whoever waits for the last one waits for all (CUDA C++ Programming Guide,
 * "Programmatic Dependent Launch and Synchronization"; PTX ISA, griddepcontrol). Inputs that no
 * kernel makes (gate weight, biases) may be read before. */
#ifndef MOEREF_DEVICE_CUH
#define MOEREF_DEVICE_CUH

#include <stdint.h>

#ifdef MR_SIMT
#include "simt.h"
#else
#include <cuda_runtime.h>

#define ALL_LANES 0xffffffffu

__device__ static inline int warp_lane(void)
{
    return (int)(threadIdx.x & 31);
}
__device__ static inline float shuffle_xor(float x, int mask)
{
    return __shfl_xor_sync(ALL_LANES, x, mask);
}
__device__ static inline float shuffle(float x, int lane)
{
    return __shfl_sync(ALL_LANES, x, lane);
}
__device__ static inline uint32_t warp_max(uint32_t x)
{
    return __reduce_max_sync(ALL_LANES, x);
}
__device__ static inline uint32_t warp_min(uint32_t x)
{
    return __reduce_min_sync(ALL_LANES, x);
}
__device__ static inline uint32_t warp_ballot(bool x)
{
    return __ballot_sync(ALL_LANES, x);
}
__device__ static inline void sync_warp(void)
{
    __syncwarp();
}
__device__ static inline int warp_prefix(int x) /* inclusive sum over the lanes up to this one */
{
    for (int d = 1; d < 32; d *= 2) {
        int y = __shfl_up_sync(ALL_LANES, x, d);
        if (warp_lane() >= d) x += y;
    }
    return x;
}
__device__ static inline void sync_block(void)
{
    __syncthreads();
}
__device__ static inline void wait_for_producers(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
/* Lets the next kernel of a chain start, as soon as every block has said so: it can prepare. */
__device__ static inline void let_consumers_start(void)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ static inline void spin(int ns)
{
    uint64_t start, now;
    if (ns <= 0) return;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start)::"memory");
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    while (now - start < (uint64_t)ns);
}
/* Data that no kernel writes. */
__device__ static inline uint4 load_constant(const uint4 *p)
{
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* Data that other blocks of this launch wrote: past the multiprocessor's own cache. */
__device__ static inline float load_shared_value(const float *p)
{
    return __ldcg(p);
}
__device__ static inline void prefetch(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* Copies to shared memory that go on by themselves: 16 bytes, or 16 bytes of 0 if the source is not
 * there. A thread closes a group of its copies, and waits until at most N groups are open. */
__device__ static inline void copy_chunk(uint4 *to, const uint4 *from, bool there)
{
    uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}
__device__ static inline void close_copies(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> __device__ static inline void wait_copies(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
/* The memory that a launch asks for beside what the kernel declares. */
__device__ static inline uint4 *dynamic_shared(void)
{
    extern __shared__ uint4 memory[];
    return memory;
}

/* Blocks of one launch meet. By one thread, between two barriers of the block: what its block wrote
 * before is seen by the block of whoever finds it counted (release and acquire are cumulative over
 * the barriers; PTX ISA, memory consistency model, causality order). How many came before. */
__device__ static inline uint32_t arrive(uint32_t *counter)
{
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    return before;
}
__device__ static inline void wait_until(const uint32_t *counter, uint32_t arrived)
{
    uint32_t now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    while (now < arrived);
}

/* c += a b, 16 x 8 x 16, bf16 to fp32. Lane 4 g + t has of a the rows g (a[0], a[2]) and g + 8
 * (a[1], a[3]), of b the column g: two terms a register, terms 2 t of the step's first and second
 * half; of c the rows g (c[0], c[1]) and g + 8 at columns 2 t and 2 t + 1 (PTX ISA, mma.m16n8k16).
 */
__device__ static inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Scalar functions in nvcc's default flags; their names in ref/arith/cuda.h, which has every bit of
 * them, are sigmoid.expf, sqrt-softplus.fmaxf and expf. */
__device__ static inline float sigmoid_score(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
/* sigmoid_score of each. A division to nearest has one result; where neither operand nor result
 * is extreme, nvcc makes it of these four operations, and a branch about each keeps them apart. Here
 * the V of them go side by side. Numbers from 2^126 up (x below -87), Inf and NaN go its way. */
template <int V> __device__ static inline void sigmoid_scores(float (&x)[V])
{
    bool extreme = false;
#pragma unroll
    for (int i = 0; i < V; i++) {
        x[i] = 1.0f + expf(-x[i]);
        extreme = extreme || !(x[i] < 0x1p126f);
    }
    if (extreme) {
#pragma unroll
        for (int i = 0; i < V; i++) x[i] = 1.0f / x[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        float about;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(about) : "f"(x[i]));
        x[i] = fmaf(about, -fmaf(about, x[i], -1.0f), about);
    }
}
__device__ static inline float sqrt_softplus_score(float x)
{
    return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
}
__device__ static inline float exponential(float x)
{
    return expf(x);
}
#endif

/* An addition that nothing before it is fused into: the product at the end of expf would be. */
__device__ static inline float plus(float a, float b)
{
    return __fadd_rn(a, b);
}
__device__ static inline float bf16_low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}
__device__ static inline float bf16_high(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

#endif
