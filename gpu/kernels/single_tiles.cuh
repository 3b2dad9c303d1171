/* The GEMM of single.cuh for many rows, with the same arithmetic: a unit is 64 rows by 288 experts,
 * by one slice of K or by all of them, as the host says. K streams through shared memory, 64
 * positions a stage; a warp has 32 rows (on the M side) by 72 experts. Operands go from shared
 * memory to registers as they do from global memory for few rows, 8 consecutive positions a lane,
 * so they are dealt to the same two chains. Each stage's sums are added to those of the slice
 * (every:64), and the slice's to those of all (every:512), in registers. */
#ifndef MOEREF_SINGLE_TILES_CUH
#define MOEREF_SINGLE_TILES_CUH

#include "kernel.cuh"

#define TILE_ROWS    64
#define TILE_EXPERTS 288
#define TILE_STAGES  4
#define TILE_CHUNKS  8 /* of a row in a stage, 16 bytes each */
#define TILE_LINES   (TILE_ROWS + TILE_EXPERTS)
#define TILE_STAGE   (TILE_LINES * TILE_CHUNKS) /* in chunks */
#define TILE_SHARED  (TILE_STAGES * TILE_STAGE * 16)
#define TILE_WARPS   8 /* 2 x 4 */
#define TILE_M       2 /* instructions of a warp by 16 rows */
#define TILE_N       9 /* and by 8 experts */
#define TILE_WIDTH   64
#define TILE_SLICE   512

struct tile_problem {
    int rows, experts, hidden;
    int parts; /* of K, units each; 1: a unit does all of K */
    const uint16_t *x, *gate;
    float *partial; /* [parts, rows, experts] */
};

/* Where chunk c of a line is: odd lines have their halves exchanged, so that the 8 lanes that are
 * served at once, 4 chunks of two lines, find all banks. */
__device__ static inline int tile_chunk(int line, int c)
{
    return line * TILE_CHUNKS + (c ^ (line & 1) << 2);
}

__device__ static inline void load_stage(const struct tile_problem &p, uint4 *stage, int row,
                                         int expert, int position)
{
#pragma unroll
    for (int i = 0; i < TILE_STAGE / (TILE_WARPS * 32); i++) {
        int at = (int)threadIdx.x + i * TILE_WARPS * 32, line = at / TILE_CHUNKS;
        int c = at % TILE_CHUNKS, k = position + c * 8;
        bool is_row = line < TILE_ROWS;
        int which = is_row ? row + line : expert + line - TILE_ROWS;
        bool there = which < (is_row ? p.rows : p.experts) && k < p.hidden;
        const uint16_t *from = is_row ? p.x : p.gate;
        copy_chunk(stage + tile_chunk(line, c),
                   (const uint4 *)(from + (there ? (size_t)which * p.hidden + k : 0)), there);
    }
}

/* sum += the products of one stage. */
__device__ static inline void multiply_stage(const uint4 *stage, float (&sum)[TILE_M][TILE_N][4])
{
    int lane = warp_lane(), warp = (int)threadIdx.x / 32, quarter = lane % 4;
    int row = warp % 2 * TILE_M * 16 + lane / 4;
    int expert = TILE_ROWS + warp / 2 * TILE_N * 8 + lane / 4;
    uint4 a[2][TILE_M][2];
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int m = 0; m < TILE_M; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                a[j][m][h] = stage[tile_chunk(row + m * 16 + h * 8, j * 4 + quarter)];
#pragma unroll
    for (int n = 0; n < TILE_N; n++) {
        uint4 b[2];
        float low[TILE_M][4], high[TILE_M][4];
#pragma unroll
        for (int j = 0; j < 2; j++) b[j] = stage[tile_chunk(expert + n * 8, j * 4 + quarter)];
#pragma unroll
        for (int m = 0; m < TILE_M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) low[m][i] = high[m][i] = 0.0f;
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int m = 0; m < TILE_M; m++) {
                const uint4 &x = a[j][m][0], &y = a[j][m][1];
                mma_bf16(low[m], {x.x, y.x, x.y, y.y}, {b[j].x, b[j].y});
                mma_bf16(high[m], {x.z, y.z, x.w, y.w}, {b[j].z, b[j].w});
            }
#pragma unroll
        for (int m = 0; m < TILE_M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[m][n][i] = plus(sum[m][n][i], plus(low[m][i], high[m][i]));
    }
}

/* Sums begin with +0, which leaves the first that is added as it is: none is -0 (single.cuh). */
__device__ static inline void clear_sums(float (&sum)[TILE_M][TILE_N][4])
{
#pragma unroll
    for (int m = 0; m < TILE_M; m++)
#pragma unroll
        for (int n = 0; n < TILE_N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[m][n][i] = 0.0f;
}

__device__ static inline void store_tile(const struct tile_problem &p, int row, int expert,
                                         float *partial, const float (&sum)[TILE_M][TILE_N][4])
{
    int lane = warp_lane(), warp = (int)threadIdx.x / 32;
    row += warp % 2 * TILE_M * 16 + lane / 4;
    expert += warp / 2 * TILE_N * 8 + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < TILE_M; m++)
#pragma unroll
        for (int n = 0; n < TILE_N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = row + m * 16 + i / 2 * 8, e = expert + n * 8 + i % 2;
                if (at < p.rows && e < p.experts)
                    partial[(size_t)at * p.experts + e] = sum[m][n][i];
            }
}

/* All units of this block. */
__device__ static inline void multiply_tiles(const struct tile_problem &p, uint4 *stages)
{
    int chunks = (p.experts + TILE_EXPERTS - 1) / TILE_EXPERTS;
    int units = (p.rows + TILE_ROWS - 1) / TILE_ROWS * chunks * p.parts;
#pragma unroll 1
    for (int unit = (int)blockIdx.x; unit < units; unit += (int)gridDim.x) {
        int part = unit % p.parts, expert = unit / p.parts % chunks * TILE_EXPERTS;
        int row = unit / p.parts / chunks * TILE_ROWS;
        int from = part * TILE_SLICE;
        int to = p.parts > 1 && from + TILE_SLICE < p.hidden ? from + TILE_SLICE : p.hidden;
        int steps = (to - from + TILE_WIDTH - 1) / TILE_WIDTH;
        float slice[TILE_M][TILE_N][4], all[TILE_M][TILE_N][4];
        clear_sums(slice);
        clear_sums(all);
#pragma unroll 1
        for (int i = 0; i < TILE_STAGES - 1; i++) {
            if (i < steps)
                load_stage(p, stages + i * TILE_STAGE, row, expert, from + i * TILE_WIDTH);
            close_copies();
        }
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            int next = i + TILE_STAGES - 1;
            wait_copies<TILE_STAGES - 2>();
            sync_block(); /* the stage is there for all, and all are done with the one before */
            if (next < steps)
                load_stage(p, stages + next % TILE_STAGES * TILE_STAGE, row, expert,
                           from + next * TILE_WIDTH);
            close_copies();
            multiply_stage(stages + i % TILE_STAGES * TILE_STAGE, slice);
            if ((i + 1) % (TILE_SLICE / TILE_WIDTH) == 0 || i + 1 == steps) {
#pragma unroll
                for (int m = 0; m < TILE_M; m++)
#pragma unroll
                    for (int n = 0; n < TILE_N; n++)
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            all[m][n][j] = plus(all[m][n][j], slice[m][n][j]);
                clear_sums(slice);
            }
        }
        store_tile(p, row, expert, p.partial + (size_t)part * p.rows * p.experts, all);
        sync_block();
    }
}

#endif
