"""Kernels that time other kernels, and floors under them: gpu/floors.cu, compiled by NVRTC so that
nothing has to be built. Each is a callable that enqueues itself on torch's current stream."""
import torch

SOURCE = r"""
extern "C" __global__ void moeref_empty() {}

/* Separates sections of a recording. */
extern "C" __global__ void moeref_mark() {}

/* One pass of 16-byte loads, 4 a thread. It flushes the L2 by reading: a memset would leave dirty
 * lines, whose write-back would be timed with the next kernel. */
__device__ __forceinline__ void read_all(const uint4 *data, int words, int *sink)
{
    long long block = (long long)blockIdx.x * 1024;
    uint4 v[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        long long at = block + i * 256 + threadIdx.x;
        v[i] = at < words ? __ldg(data + at) : make_uint4(0, 0, 0, 0);
    }
    unsigned all = 0;
    #pragma unroll
    for (int i = 0; i < 4; i++) all |= v[i].x & v[i].y & v[i].z & v[i].w;
    if (all == 0x9e3779b9u) *sink = (int)all; /* next to never, but no compiler can know */
}
extern "C" __global__ void moeref_read(const uint4 *data, int words, int *sink)
{
    read_all(data, words, sink);
}
extern "C" __global__ void moeref_flush(const uint4 *data, int words, int *sink)
{
    read_all(data, words, sink);
}

/* Keeps the device busy without touching memory, so that the host can get ahead of it. */
extern "C" __global__ void moeref_spin(int ns)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < (unsigned long long)ns);
}
"""

MARK, FLUSH, SPIN = "moeref_mark", "moeref_flush", "moeref_spin"
LONGEST = 2**31 - 1  # ns that SPIN takes

_compiled = {}


def kernel(name, device):
    key = name, torch.device(device)
    if key not in _compiled:
        with torch.cuda.device(device):
            _compiled[key] = torch.cuda._compile_kernel(SOURCE, name)
    return _compiled[key]


def empty(device, blocks=1):
    run = kernel("moeref_empty", device)
    return lambda: run(grid=(blocks, 1, 1), block=(256, 1, 1))


def mark(device):
    run = kernel(MARK, device)
    return lambda: run(grid=(1, 1, 1), block=(32, 1, 1))


def spin(device, ns):
    run, ns = kernel(SPIN, device), min(int(ns), LONGEST)
    return lambda: run(grid=(1, 1, 1), block=(1, 1, 1), args=[ns])


def read(device, data, name="moeref_read"):
    """Reads every byte of a tensor but the last few that fill no 16 bytes."""
    run, sink = kernel(name, device), torch.zeros(1, dtype=torch.int32, device=device)
    words = data.numel() * data.element_size() // 16
    args = [data, words, sink]
    return lambda: run(grid=((words + 1023) // 1024, 1, 1), block=(256, 1, 1), args=args)


def flush(device, size=None):
    """Reads more than twice the L2, as gpu/timing_cuda.c does: 2.5 times and a megabyte."""
    l2 = torch.cuda.get_device_properties(device).L2_cache_size
    size = size or (l2 * 5 // 2 + (1 << 20)) // 256 * 256
    return read(device, torch.full((size,), 0x11, dtype=torch.uint8, device=device), FLUSH), size
