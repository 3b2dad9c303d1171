/* One kernel template for mma.sync, one for wgmma; an instruction is a struct with its assembly.
 * Sources: PTX ISA 9.0, "Warp Level Matrix Multiply-Accumulate Instructions" (fragment layouts) and
 * "Asynchronous Warpgroup Level Matrix Instructions" (matrix descriptor, core matrices).
 *
 * All operand types have the same fragment layout in bytes: a thread holds 4 bytes of a row at
 * 4 * (lane % 4) of each 16 bytes of k, rows lane / 4 and 8 further. */
#include "instructions.h"

struct fragment {
    uint32_t a[4], b[4], d[4];
    uint64_t a_desc, b_desc;
};

#define D_F32 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define D_F16 "+r"(f.d[0]), "+r"(f.d[1])
#define D_S32 "+r"(f.d[0]), "+r"(f.d[1]), "+r"(f.d[2]), "+r"(f.d[3])
#define A4 "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3])
#define A2 "r"(f.a[0]), "r"(f.a[1])
#define B4 "r"(f.b[0]), "r"(f.b[1]), "r"(f.b[2]), "r"(f.b[3])
#define B2 "r"(f.b[0]), "r"(f.b[1])
#define B1 "r"(f.b[0])
#define AB_SS "l"(f.a_desc), "l"(f.b_desc)
#define AB_RS A4, "l"(f.b_desc)
#define AB_4_2 A4, B2
#define AB_2_1 A2, B1
/* Sparsity metadata: of each four positions of k, the first two. */
#define PAIRS "r"(0x44444444)
#define AB_4_4 A4, B4, PAIRS
#define AB_SP "l"(f.a_desc), "l"(f.b_desc), PAIRS

/* Operand lists: D takes 4 or 2 registers, then A and B. */
#define LIST_4_4_2 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#define LIST_4_2_1 "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
#define LIST_2_4_2 "{%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
#define LIST_2_2_1 "{%0,%1}, {%2,%3}, {%4}, {%0,%1};"
#define LIST_4_SP \
    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, 0x0;"
#define LIST_2_SP "{%0,%1}, {%2,%3,%4,%5}, {%6,%7,%8,%9}, {%0,%1}, %10, 0x0;"
#define LIST_4_SS "{%0,%1,%2,%3}, %4, %5"
#define LIST_4_RS "{%0,%1,%2,%3}, {%4,%5,%6,%7}, %8"
#define LIST_2_SS "{%0,%1}, %2, %3"
#define LIST_2_RS "{%0,%1}, {%2,%3,%4,%5}, %6"

/* Accumulators of type f32 need registers of that type; the bits pass unchanged. */
#define WITH_F32(assembly) \
    { \
        float d[4]; \
        for (int i = 0; i < 4; i++) d[i] = __uint_as_float(f.d[i]); \
        assembly; \
        for (int i = 0; i < 4; i++) f.d[i] = __float_as_uint(d[i]); \
    }
#define PLAIN(assembly) { assembly; }

enum where { REGISTERS, SHARED };
/* run: the instruction. half: accumulator fp16. words: B's 16-byte chunks of k (4: sparse). */
#define INSTRUCTION(id, with, HALF, WORDS, A_WHERE, TA, TB, assembly) \
    struct id { \
        static constexpr bool half = HALF; \
        static constexpr int words = WORDS; \
        static constexpr where a_where = A_WHERE; \
        static constexpr bool ta = TA, tb = TB; \
        static __device__ void run(fragment &f) with(assembly) \
    };

#define MMA(id, with, HALF, WORDS, text, list, D, AB) \
    INSTRUCTION(id, with, HALF, WORDS, REGISTERS, false, false, \
                asm volatile("mma" text " " list : D : AB))
/* tail: scale-d (a predicate), imm-scales and transpositions. */
#define WGMMA(id, with, HALF, WORDS, A_WHERE, TA, TB, text, list, tail, D, AB) \
    INSTRUCTION(id, with, HALF, WORDS, A_WHERE, TA, TB, \
                asm volatile("{ .reg .pred p, q; setp.eq.u32 p, 0, 0; not.pred q, p;" \
                             "wgmma.fence.sync.aligned;" \
                             "wgmma.mma_async" text " " list tail ";" \
                             "wgmma.commit_group.sync.aligned;" \
                             "wgmma.wait_group.sync.aligned 0; }" \
                             : D : AB : "memory"))

__device__ int fragment_row(int r)
{
    return 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4 + 8 * r;
}

__device__ uint32_t load_word(const uint8_t *p)
{
    return *(const uint32_t *)p;
}

template <class I> __device__ void load_c(const device_tile &t, fragment &f)
{
    int column = threadIdx.x % 4 * 2;
    for (int r = 0; r < 2; r++) {
        uint32_t c0 = t.c[fragment_row(r) * MMA_COLS + column];
        uint32_t c1 = t.c[fragment_row(r) * MMA_COLS + column + 1];
        if (I::half) {
            f.d[r] = c0 | c1 << 16;
        } else {
            f.d[2 * r] = c0;
            f.d[2 * r + 1] = c1;
        }
    }
}

template <class I> __device__ void store_d(uint32_t *d, const fragment &f)
{
    int column = threadIdx.x % 4 * 2;
    for (int r = 0; r < 2; r++) {
        uint32_t *out = d + fragment_row(r) * MMA_COLS + column;
        out[0] = I::half ? f.d[r] & 0xffff : f.d[2 * r];
        out[1] = I::half ? f.d[r] >> 16 : f.d[2 * r + 1];
    }
}

__device__ void load_a(const device_tile &t, fragment &f)
{
    for (int r = 0; r < 4; r++)
        f.a[r] = load_word(t.a + fragment_row(r % 2) * 32 + r / 2 * 16 + threadIdx.x % 4 * 4);
}

/* Byte x of row j of sparse B: two elements of the packed row, then two that are NaN. */
template <int BYTES> __device__ uint8_t spread_b(const device_tile &t, int j, int x)
{
    int group = x / (4 * BYTES), in = x % (4 * BYTES);
    if (in >= 2 * BYTES) return BYTES == 2 && x % 2 == 0 ? 0xff : 0x7f;
    return t.b[j * 32 + group * 2 * BYTES + in];
}

template <class I, int BYTES> __global__ void mma_kernel(const device_tile *tiles, uint32_t *d)
{
    const device_tile &t = tiles[blockIdx.x];
    fragment f;
    load_c<I>(t, f);
    load_a(t, f);
    int j = threadIdx.x % 32 / 4, at = threadIdx.x % 4 * 4;
    for (int r = 0; r < I::words; r++) {
        if (I::words <= 2) {
            f.b[r] = load_word(t.b + j * 32 + r * 16 + at);
        } else {
            uint32_t w = 0;
            for (int x = 0; x < 4; x++)
                w |= (uint32_t)spread_b<BYTES>(t, j, r * 16 + at + x) << 8 * x;
            f.b[r] = w;
        }
    }
    I::run(f);
    store_d<I>(d + blockIdx.x * MMA_ROWS * MMA_COLS, f);
}

/* Matrix descriptor without swizzle: address, leading and stride byte offsets, in 16 bytes. */
__device__ uint64_t descriptor(const void *shared, uint32_t leading, uint32_t stride)
{
    uint64_t address = (uint32_t)__cvta_generic_to_shared(shared);
    return (address & 0x3ffff) >> 4 | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

/* Core matrices are 8 rows of 16 bytes. K-major: those of one row group follow each other along k,
 * 128 bytes each; a row group takes `words` of them. MN-major (16-bit types): a core matrix is 8
 * positions of k, each 8 rows' elements. */
template <class I, int BYTES>
__global__ void wgmma_kernel(const device_tile *tiles, uint32_t *d, bool swapped)
{
    __shared__ alignas(128) uint8_t a[MMA_ROWS * 32];
    __shared__ alignas(128) uint8_t b[MMA_COLS * 64];
    const device_tile &t = tiles[blockIdx.x];
    for (int x = threadIdx.x; x < MMA_ROWS * 32; x += blockDim.x) {
        int row = x / 32, byte = x % 32, p = byte / 2;
        int at = I::ta ? row / 8 * 256 + p / 8 * 128 + p % 8 * 16 + row % 8 * 2 + byte % 2
                       : row / 8 * 256 + byte / 16 * 128 + row % 8 * 16 + byte % 16;
        a[at] = t.a[x];
    }
    for (int x = threadIdx.x; x < MMA_COLS * I::words * 16; x += blockDim.x) {
        int row = x / (I::words * 16), byte = x % (I::words * 16), p = byte / 2;
        int at = I::tb ? p / 8 * 128 + p % 8 * 16 + row * 2 + byte % 2
                       : byte / 16 * 128 + row * 16 + byte % 16;
        b[at] = I::words <= 2 ? t.b[x] : spread_b<BYTES>(t, row, byte);
    }
    fragment f;
    load_c<I>(t, f);
    load_a(t, f);
    bool a_swap = I::ta && swapped, b_swap = I::tb && swapped;
    f.a_desc = descriptor(a, a_swap ? 256 : 128, a_swap ? 128 : 256);
    f.b_desc = descriptor(b, b_swap ? 256 : 128, b_swap ? 128 : 256);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    I::run(f);
    store_d<I>(d + blockIdx.x * MMA_ROWS * MMA_COLS, f);
}

static bool strides_swapped;

void instructions_swap_strides(int swapped)
{
    strides_swapped = swapped != 0;
}

template <class I, int BYTES>
static void launch_mma(const device_tile *tiles, uint32_t *d, int count)
{
    mma_kernel<I, BYTES><<<count, 128>>>(tiles, d);
}
template <class I, int BYTES>
static void launch_wgmma(const device_tile *tiles, uint32_t *d, int count)
{
    wgmma_kernel<I, BYTES><<<count, 128>>>(tiles, d, strides_swapped);
}

/* Every instruction twice: its struct here, its row in the table below. */
#define MMA_F32(id, text) MMA(id, WITH_F32, false, 2, text, LIST_4_4_2, D_F32, AB_4_2)
#define MMA_F32_SHORT(id, text) MMA(id, WITH_F32, false, 1, text, LIST_4_2_1, D_F32, AB_2_1)
#define MMA_F16(id, text) MMA(id, PLAIN, true, 2, text, LIST_2_4_2, D_F16, AB_4_2)
#define MMA_F16_SHORT(id, text) MMA(id, PLAIN, true, 1, text, LIST_2_2_1, D_F16, AB_2_1)
#define MMA_S32(id, text) MMA(id, PLAIN, false, 2, text, LIST_4_4_2, D_S32, AB_4_2)

#define DENSE ".sync.aligned"
#define SPARSE ".sp::ordered_metadata.sync.aligned"
MMA_F32(m_bf16, DENSE ".m16n8k16.row.col.f32.bf16.bf16.f32")
MMA_F32_SHORT(m_bf16_k8, DENSE ".m16n8k8.row.col.f32.bf16.bf16.f32")
MMA_F32(m_f16, DENSE ".m16n8k16.row.col.f32.f16.f16.f32")
MMA_F32_SHORT(m_f16_k8, DENSE ".m16n8k8.row.col.f32.f16.f16.f32")
MMA_F16(m_f16_f16, DENSE ".m16n8k16.row.col.f16.f16.f16.f16")
MMA_F16_SHORT(m_f16_f16_k8, DENSE ".m16n8k8.row.col.f16.f16.f16.f16")
MMA_F32(m_tf32, DENSE ".m16n8k8.row.col.f32.tf32.tf32.f32")
MMA_F32_SHORT(m_tf32_k4, DENSE ".m16n8k4.row.col.f32.tf32.tf32.f32")
MMA_S32(m_s8, DENSE ".m16n8k32.row.col.s32.s8.s8.s32")
MMA_S32(m_s8_sat, DENSE ".m16n8k32.row.col.satfinite.s32.s8.s8.s32")
#define MMA_FP8(a, b) \
    MMA_F32(m_##a##_##b, DENSE ".m16n8k32.row.col.f32." #a "." #b ".f32") \
    MMA_F32_SHORT(m_##a##_##b##_k16, DENSE ".m16n8k16.row.col.f32." #a "." #b ".f32") \
    MMA_F16(m_##a##_##b##_f16, DENSE ".m16n8k32.row.col.f16." #a "." #b ".f16") \
    MMA_F16_SHORT(m_##a##_##b##_f16_k16, DENSE ".m16n8k16.row.col.f16." #a "." #b ".f16")
MMA_FP8(e4m3, e4m3)
MMA_FP8(e4m3, e5m2)
MMA_FP8(e5m2, e4m3)
MMA_FP8(e5m2, e5m2)
MMA(sp_bf16, WITH_F32, false, 4, SPARSE ".m16n8k32.row.col.f32.bf16.bf16.f32", LIST_4_SP, D_F32,
    AB_4_4)
MMA(sp_f16_f16, PLAIN, true, 4, SPARSE ".m16n8k32.row.col.f16.f16.f16.f16", LIST_2_SP, D_F16,
    AB_4_4)
MMA(sp_e4m3, WITH_F32, false, 4, SPARSE ".m16n8k64.row.col.f32.e4m3.e4m3.f32", LIST_4_SP, D_F32,
    AB_4_4)

/* Tails: half-precision types have imm-scales and transpositions, tf32 and fp8 imm-scales, s8 none.
 * With A in registers only B can be transposed. */
#define SS(id, text, tail, TA, TB) \
    WGMMA(id, WITH_F32, false, 2, SHARED, TA, TB, text, LIST_4_SS, tail, D_F32, AB_SS)
#define RS(id, text, tail) \
    WGMMA(id, WITH_F32, false, 2, REGISTERS, false, false, text, LIST_4_RS, tail, D_F32, AB_RS)
#define SS_F16(id, text, tail) \
    WGMMA(id, PLAIN, true, 2, SHARED, false, false, text, LIST_2_SS, tail, D_F16, AB_SS)
#define RS_F16(id, text, tail) \
    WGMMA(id, PLAIN, true, 2, REGISTERS, false, false, text, LIST_2_RS, tail, D_F16, AB_RS)

#define W_BF16 ".sync.aligned.m64n8k16.f32.bf16.bf16"
SS(w_bf16, W_BF16, ", p, 1, 1, 0, 0", false, false)
RS(w_bf16_ra, W_BF16, ", p, 1, 1, 0")
SS(w_bf16_na, W_BF16, ", p, -1, 1, 0, 0", false, false)
SS(w_bf16_nb, W_BF16, ", p, 1, -1, 0, 0", false, false)
SS(w_bf16_ta, W_BF16, ", p, 1, 1, 1, 0", true, false)
SS(w_bf16_tb, W_BF16, ", p, 1, 1, 0, 1", false, true)
SS(w_bf16_z, W_BF16, ", q, 1, 1, 0, 0", false, false)
RS(w_bf16_ra_na, W_BF16, ", p, -1, 1, 0")
#define W_F16 ".sync.aligned.m64n8k16.f32.f16.f16"
SS(w_f16, W_F16, ", p, 1, 1, 0, 0", false, false)
RS(w_f16_ra, W_F16, ", p, 1, 1, 0")
SS(w_f16_ta_tb, W_F16, ", p, 1, 1, 1, 1", true, true)
#define W_F16_F16 ".sync.aligned.m64n8k16.f16.f16.f16"
SS_F16(w_f16_f16, W_F16_F16, ", p, 1, 1, 0, 0")
RS_F16(w_f16_f16_ra, W_F16_F16, ", p, 1, 1, 0")
SS_F16(w_f16_f16_na, W_F16_F16, ", p, -1, 1, 0, 0")
SS_F16(w_f16_f16_z, W_F16_F16, ", q, 1, 1, 0, 0")
#define W_TF32 ".sync.aligned.m64n8k8.f32.tf32.tf32"
SS(w_tf32, W_TF32, ", p, 1, 1", false, false)
RS(w_tf32_ra, W_TF32, ", p, 1, 1")
SS(w_tf32_nb, W_TF32, ", p, 1, -1", false, false)
#define W_FP8(a, b) \
    SS(w_##a##_##b, ".sync.aligned.m64n8k32.f32." #a "." #b, ", p, 1, 1", false, false) \
    SS_F16(w_##a##_##b##_f16, ".sync.aligned.m64n8k32.f16." #a "." #b, ", p, 1, 1")
W_FP8(e4m3, e4m3)
W_FP8(e4m3, e5m2)
W_FP8(e5m2, e4m3)
W_FP8(e5m2, e5m2)
#define W_E4M3 ".sync.aligned.m64n8k32.f32.e4m3.e4m3"
RS(w_e4m3_ra, W_E4M3, ", p, 1, 1")
SS(w_e4m3_na, W_E4M3, ", p, -1, 1", false, false)
SS(w_e4m3_nb, W_E4M3, ", p, 1, -1", false, false)
SS(w_e4m3_z, W_E4M3, ", q, 1, 1", false, false)
WGMMA(w_s8, PLAIN, false, 2, SHARED, false, false, ".sync.aligned.m64n8k32.s32.s8.s8", LIST_4_SS,
      ", p", D_S32, AB_SS)
WGMMA(w_sp_bf16, WITH_F32, false, 4, SHARED, false, false,
      ".sp.sync.aligned.m64n8k32.f32.bf16.bf16", LIST_4_SS, ", %6, 0, p, 1, 1, 0, 0", D_F32,
      AB_SP)
WGMMA(w_sp_e4m3, WITH_F32, false, 4, SHARED, false, false,
      ".sp.sync.aligned.m64n8k64.f32.e4m3.e4m3", LIST_4_SS, ", %6, 0, p, 1, 1", D_F32,
      AB_SP)

#define M(name, set, k, id, bytes) {name, set, k, launch_mma<id, bytes>}
#define W(name, set, k, id, bytes) {name, set, k, launch_wgmma<id, bytes>}
#define FP8_ROWS(a, b, f32, f16) \
    M("mma.m16n8k32.f32." #a "." #b, f32, 32, m_##a##_##b, 1), \
        M("mma.m16n8k16.f32." #a "." #b, f32, 16, m_##a##_##b##_k16, 1), \
        M("mma.m16n8k32.f16." #a "." #b, f16, 32, m_##a##_##b##_f16, 1), \
        M("mma.m16n8k16.f16." #a "." #b, f16, 16, m_##a##_##b##_f16_k16, 1), \
        W("wgmma.m64n8k32.f32." #a "." #b, f32, 32, w_##a##_##b, 1), \
        W("wgmma.m64n8k32.f16." #a "." #b, f16, 32, w_##a##_##b##_f16, 1)
#define BF "wgmma.m64n8k16.f32.bf16.bf16"
#define HF "wgmma.m64n8k16.f16.f16.f16"
#define E4 "wgmma.m64n8k32.f32.e4m3.e4m3"
const struct instruction instructions[] = {
    M("mma.m16n8k16.f32.bf16.bf16", "bf16-fp32", 16, m_bf16, 2),
    M("mma.m16n8k8.f32.bf16.bf16", "bf16-fp32", 8, m_bf16_k8, 2),
    M("mma.sp.m16n8k32.f32.bf16.bf16", "bf16-fp32", 16, sp_bf16, 2),
    W(BF, "bf16-fp32", 16, w_bf16, 2),
    W(BF "+ra", "bf16-fp32", 16, w_bf16_ra, 2),
    W(BF "+na", "bf16-fp32", 16, w_bf16_na, 2),
    W(BF "+nb", "bf16-fp32", 16, w_bf16_nb, 2),
    W(BF "+ta", "bf16-fp32", 16, w_bf16_ta, 2),
    W(BF "+tb", "bf16-fp32", 16, w_bf16_tb, 2),
    W(BF "+z", "bf16-fp32", 16, w_bf16_z, 2),
    W(BF "+ra+na", "bf16-fp32", 16, w_bf16_ra_na, 2),
    W("wgmma.sp.m64n8k32.f32.bf16.bf16", "bf16-fp32", 16, w_sp_bf16, 2),
    M("mma.m16n8k16.f32.f16.f16", "fp16-fp32", 16, m_f16, 2),
    M("mma.m16n8k8.f32.f16.f16", "fp16-fp32", 8, m_f16_k8, 2),
    W("wgmma.m64n8k16.f32.f16.f16", "fp16-fp32", 16, w_f16, 2),
    W("wgmma.m64n8k16.f32.f16.f16+ra", "fp16-fp32", 16, w_f16_ra, 2),
    W("wgmma.m64n8k16.f32.f16.f16+ta+tb", "fp16-fp32", 16, w_f16_ta_tb, 2),
    M("mma.m16n8k16.f16.f16.f16", "fp16-fp16", 16, m_f16_f16, 2),
    M("mma.m16n8k8.f16.f16.f16", "fp16-fp16", 8, m_f16_f16_k8, 2),
    M("mma.sp.m16n8k32.f16.f16.f16", "fp16-fp16", 16, sp_f16_f16, 2),
    W(HF, "fp16-fp16", 16, w_f16_f16, 2),
    W(HF "+ra", "fp16-fp16", 16, w_f16_f16_ra, 2),
    W(HF "+na", "fp16-fp16", 16, w_f16_f16_na, 2),
    W(HF "+z", "fp16-fp16", 16, w_f16_f16_z, 2),
    M("mma.m16n8k8.f32.tf32.tf32", "tf32-fp32", 8, m_tf32, 4),
    M("mma.m16n8k4.f32.tf32.tf32", "tf32-fp32", 4, m_tf32_k4, 4),
    W("wgmma.m64n8k8.f32.tf32.tf32", "tf32-fp32", 8, w_tf32, 4),
    W("wgmma.m64n8k8.f32.tf32.tf32+ra", "tf32-fp32", 8, w_tf32_ra, 4),
    W("wgmma.m64n8k8.f32.tf32.tf32+nb", "tf32-fp32", 8, w_tf32_nb, 4),
    FP8_ROWS(e4m3, e4m3, "e4m3-fp32", "e4m3-fp16"),
    FP8_ROWS(e4m3, e5m2, "e4m3-e5m2-fp32", "e4m3-e5m2-fp16"),
    FP8_ROWS(e5m2, e4m3, "e5m2-e4m3-fp32", "e5m2-e4m3-fp16"),
    FP8_ROWS(e5m2, e5m2, "e5m2-fp32", "e5m2-fp16"),
    M("mma.sp.m16n8k64.f32.e4m3.e4m3", "e4m3-fp32", 32, sp_e4m3, 1),
    W(E4 "+ra", "e4m3-fp32", 32, w_e4m3_ra, 1),
    W(E4 "+na", "e4m3-fp32", 32, w_e4m3_na, 1),
    W(E4 "+nb", "e4m3-fp32", 32, w_e4m3_nb, 1),
    W(E4 "+z", "e4m3-fp32", 32, w_e4m3_z, 1),
    W("wgmma.sp.m64n8k64.f32.e4m3.e4m3", "e4m3-fp32", 32, w_sp_e4m3, 1),
    M("mma.m16n8k32.s32.s8.s8", "s8-s32", 32, m_s8, 1),
    M("mma.m16n8k32.s32.s8.s8+sat", "s8-s32", 32, m_s8_sat, 1),
    W("wgmma.m64n8k32.s32.s8.s8", "s8-s32", 32, w_s8, 1),
};
const int instruction_count = sizeof instructions / sizeof *instructions;
