/* The threads of simt.h, and the kernels of a build with MR_SIMT as a plugin of their own. */
#ifdef MR_SIMT

#include "kernel.cuh"

#include <stdlib.h>
#include <ucontext.h>

/* A member there has a name that is none in C++. */
#define class class_
extern "C" {
#include "../../ref/arith/mma.h"
}
#undef class

#if __has_include("../../ref/arith/cuda.h")
extern "C" {
#include "../../ref/arith/cuda.h"
}
static float apply(enum mr_cuda_id id, float x)
{
    mr_cuda_apply(id, &x, 1, &x);
    return x;
}
float mr_simt_sigmoid(float x)
{
    return apply(MR_CUDA_SIGMOID, x);
}
float mr_simt_sqrt_softplus(float x)
{
    return apply(MR_CUDA_ROOT_FMAXF, x);
}
float mr_simt_exp(float x)
{
    return apply(MR_CUDA_EXPF, x);
}
#else
float mr_simt_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
float mr_simt_sqrt_softplus(float x)
{
    return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
}
float mr_simt_exp(float x)
{
    return expf(x);
}
#endif

struct mr_simt mr_simt;

#define MOST_THREADS 1024
#define STACK_BYTES  (64 * 1024)

struct operands {
    float *c;
    const uint32_t *a, *b;
};

struct fiber {
    ucontext_t context;
    char *stack;
    struct operands mma;
    uint32_t value, result;
    int argument;
    bool done;
};

/* Who waits at a barrier: of a warp (with its operation) or of the block. */
struct barrier {
    int arrived;
    enum mr_simt_op op;
};

static struct {
    ucontext_t scheduler;
    struct fiber fiber[MOST_THREADS];
    struct barrier warp[MOST_THREADS / 32], block;
    int threads, now, done, ready_count, ready[MOST_THREADS];
    uint64_t random;
    void (*body)(void *);
    void *data;
} run;

static void wake(int thread)
{
    run.ready[run.ready_count++] = thread;
}

static void sleep_fiber(void)
{
    swapcontext(&run.fiber[run.now].context, &run.scheduler);
}

static void fail(const char *what)
{
    fprintf(stderr, "simt: block %u: %s\n", mr_simt.block.x, what);
    abort();
}

/* Each lane's four results by the reference, from the operands of all. */
static void multiply(struct fiber *lane)
{
    const struct mr_mma *mma = mr_mma_find("hopper-bf16", 11);
    uint32_t a = 0, b = 0, c = 0;
    bool finite = true;
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 4; j++) {
            uint32_t x = lane[i].mma.a[j], y = lane[i].mma.b[j % 2];
            a |= x, b |= y, c |= __float_as_uint(lane[i].mma.c[j]);
            for (int h = 0; h < 32; h += 16)
                finite &= (x >> h & 0x7f80) != 0x7f80 && (y >> h & 0x7f80) != 0x7f80;
        }
    if (finite && c == 0 && (a == 0 || b == 0)) return; /* +0 stays +0 */
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 4; j++) {
            uint32_t a[16], b[16];
            for (int k = 0; k < 16; k++) {
                int t = k % 8 / 2, half = k / 8;
                uint32_t x = lane[i / 4 * 4 + t].mma.a[half * 2 + j / 2];
                uint32_t y = lane[(i % 4 * 2 + j % 2) * 4 + t].mma.b[half];
                a[k] = k % 2 ? x >> 16 : x & 0xffff;
                b[k] = k % 2 ? y >> 16 : y & 0xffff;
            }
            float *c = &lane[i].mma.c[j];
            *c = __uint_as_float(mr_mma_step(mma, a, b, 16, __float_as_uint(*c), nullptr));
        }
}

static void work_out(enum mr_simt_op op, struct fiber *lane)
{
    if (op == MR_SIMT_MMA) {
        multiply(lane);
        return;
    }
    uint32_t most = 0, least = ~0u, set = 0;
    uint32_t sum = 0;
    for (int i = 0; i < 32; i++) {
        most = max(most, lane[i].value);
        least = min(least, lane[i].value);
        set |= (uint32_t)(lane[i].value != 0) << i;
    }
    for (int i = 0; i < 32; i++) {
        sum += lane[i].value;
        switch (op) {
        case MR_SIMT_XOR: lane[i].result = lane[i ^ lane[i].argument].value; break;
        case MR_SIMT_FROM: lane[i].result = lane[lane[i].argument & 31].value; break;
        case MR_SIMT_MAX: lane[i].result = most; break;
        case MR_SIMT_MIN: lane[i].result = least; break;
        case MR_SIMT_PREFIX: lane[i].result = sum; break;
        case MR_SIMT_BALLOT: lane[i].result = set; break;
        case MR_SIMT_MMA: break;
        }
    }
}

uint32_t mr_simt_warp(enum mr_simt_op op, uint32_t value, int argument)
{
    int me = run.now, base = me / 32 * 32;
    struct barrier *b = &run.warp[me / 32];
    run.fiber[me].value = value;
    run.fiber[me].argument = argument;
    if (b->arrived++ == 0) b->op = op;
    if (b->op != op) fail("lanes of a warp meet in different operations");
    if (b->arrived == 32) {
        b->arrived = 0;
        work_out(op, run.fiber + base);
        for (int i = 0; i < 32; i++) wake(base + i);
    }
    sleep_fiber();
    return run.fiber[me].result;
}

void mr_simt_mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    run.fiber[run.now].mma = {c, a, b};
    mr_simt_warp(MR_SIMT_MMA, 0, 0);
}

void mr_simt_block(void)
{
    if (++run.block.arrived == run.threads) {
        run.block.arrived = 0;
        for (int i = 0; i < run.threads; i++) wake(i);
    }
    sleep_fiber();
}

static void start(void)
{
    run.body(run.data);
    run.fiber[run.now].done = true;
    swapcontext(&run.fiber[run.now].context, &run.scheduler);
}

static void run_block(void)
{
    run.block.arrived = run.ready_count = run.done = 0;
    for (int t = 0; t < run.threads; t++) {
        struct fiber *f = &run.fiber[t];
        if (!f->stack) f->stack = (char *)malloc(STACK_BYTES);
        if (!f->stack) fail("no memory");
        f->done = false;
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = f->stack;
        f->context.uc_stack.ss_size = STACK_BYTES;
        f->context.uc_link = nullptr;
        makecontext(&f->context, start, 0);
        wake(t);
    }
    for (int w = 0; w < run.threads / 32; w++) run.warp[w].arrived = 0;
    while (run.ready_count > 0) {
        run.random = run.random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        int i = (int)((run.random >> 33) % (uint64_t)run.ready_count);
        run.now = run.ready[i];
        run.ready[i] = run.ready[--run.ready_count];
        mr_simt.thread = dim3((unsigned)run.now);
        swapcontext(&run.scheduler, &run.fiber[run.now].context);
        run.done += run.fiber[run.now].done;
    }
    if (run.done != run.threads) fail("threads wait for others that have ended");
}

void mr_simt_run(dim3 blocks, int threads, void (*body)(void *), void *context)
{
    if (threads > MOST_THREADS || threads % 32 != 0) fail("bad number of threads");
    run.threads = threads;
    run.body = body;
    run.data = context;
    mr_simt.threads = dim3((unsigned)threads);
    mr_simt.blocks = blocks;
    for (unsigned y = 0; y < blocks.y; y++)
        for (unsigned x = 0; x < blocks.x; x++) {
            mr_simt.block = dim3(x, y);
            run_block();
        }
}

#define MOST_KERNELS 64
static const struct mr_kernel *kernels[MOST_KERNELS];
extern "C" __attribute__((visibility("default"))) struct mr_plugin moeref_plugin;
struct mr_plugin moeref_plugin = {MR_KERNEL_ABI, 0, kernels};

void mr_simt_announce(const struct mr_kernel *kernel)
{
    if (moeref_plugin.count < MOST_KERNELS) kernels[moeref_plugin.count++] = kernel;
}

#endif
