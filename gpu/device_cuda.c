/* The device by the CUDA runtime. The runtime is linked statically and opens libcuda when it is
 * first called, so that a machine without a driver can still start this program. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda_glue.h"
#include "device.h"

#ifndef GPU_BUILT_FOR
#define GPU_BUILT_FOR "sm_90a"
#endif

bool gpu_built_with_cuda(void)
{
    return true;
}

const char *gpu_built_for(void)
{
    return GPU_BUILT_FOR;
}

static enum mr_status failed(cudaError_t e, const char *what, struct mr_error *err)
{
    enum mr_status status = e == cudaErrorMemoryAllocation ? MR_ERR_MEMORY : MR_ERR_UNSUPPORTED;
    return mr_fail(err, status, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

#define CUDA(call, what)                                       \
    do {                                                       \
        cudaError_t cuda_error_ = (call);                      \
        if (cuda_error_) return failed(cuda_error_, what, err); \
    } while (0)

static enum mr_status cuda_allocate(size_t bytes, void **out, struct mr_error *err)
{
    CUDA(cudaMalloc(out, bytes), "device memory");
    return MR_OK;
}

static void cuda_release(void *pointer, size_t bytes)
{
    (void)bytes;
    cudaFree(pointer);
}

static cudaStream_t stream;

/* Filling is ordered before later work on the stream by waiting. */
static enum mr_status cuda_fill(void *to, int byte, size_t bytes, struct mr_error *err)
{
    CUDA(cudaMemsetAsync(to, byte, bytes, stream), "filling device memory");
    CUDA(cudaStreamSynchronize(stream), "filling device memory");
    return MR_OK;
}

static enum mr_status cuda_put(void *to, const void *from, size_t bytes, struct mr_error *err)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "copying to the device");
    CUDA(cudaStreamSynchronize(stream), "copying to the device");
    return MR_OK;
}

static enum mr_status cuda_get(void *to, const void *from, size_t bytes, struct mr_error *err)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream),
         "copying from the device");
    CUDA(cudaStreamSynchronize(stream), "copying from the device");
    return MR_OK;
}

static enum mr_status cuda_stream(void **out, struct mr_error *err)
{
    if (!stream) CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    *out = stream;
    return MR_OK;
}

/* A launch that was refused leaves its error behind; work that went to another stream is waited
 * for, too. */
static enum mr_status cuda_wait(void *on, struct mr_error *err)
{
    CUDA(cudaGetLastError(), "a launch");
    CUDA(cudaStreamSynchronize((cudaStream_t)on), "running");
    CUDA(cudaDeviceSynchronize(), "running");
    return MR_OK;
}

static const struct gpu_memory memory_cuda = {
    .allocate = cuda_allocate, .release = cuda_release, .fill = cuda_fill, .put = cuda_put,
    .get = cuda_get, .stream = cuda_stream, .wait = cuda_wait};

const struct gpu_memory *gpu_device_memory(void)
{
    return &memory_cuda;
}

/* The parts of NVML that are asked, by its documented C interface; a machine without it has no
 * clocks to tell. */
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };
static void ask_nvml(struct gpu_device *d, const char *bus)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), *handle;
    if (!nvml) return;
    int (*init)(void), (*by_bus)(const char *, void **), (*version)(char *, unsigned);
    int (*clock)(void *, int, unsigned *), (*most)(void *, int, unsigned *);
    *(void **)&init = dlsym(nvml, "nvmlInit_v2");
    *(void **)&by_bus = dlsym(nvml, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&version = dlsym(nvml, "nvmlSystemGetDriverVersion");
    *(void **)&clock = dlsym(nvml, "nvmlDeviceGetClockInfo");
    *(void **)&most = dlsym(nvml, "nvmlDeviceGetMaxClockInfo");
    if (!init || init()) return;
    char text[80]; /* NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE */
    if (version && !version(text, sizeof text))
        snprintf(d->driver, sizeof d->driver, "%.63s", text);
    if (!by_bus || by_bus(bus, &handle)) return;
    unsigned mhz;
    if (clock && !clock(handle, NVML_CLOCK_SM, &mhz)) d->clock_sm = (int)mhz;
    if (clock && !clock(handle, NVML_CLOCK_MEM, &mhz)) d->clock_memory = (int)mhz;
    if (most && !most(handle, NVML_CLOCK_SM, &mhz)) d->clock_sm_most = (int)mhz;
}

static enum mr_status describe(struct gpu_device *d, struct mr_error *err)
{
    struct cudaDeviceProp p;
    int version = 0;
    char bus[32] = "";
    CUDA(cudaGetDeviceProperties(&p, 0), "asking the device");
    snprintf(d->name, sizeof d->name, "%.255s", p.name);
    d->major = p.major;
    d->minor = p.minor;
    d->multiprocessors = p.multiProcessorCount;
    d->l2_bytes = p.l2CacheSize;
    d->memory_bytes = p.totalGlobalMem;
    CUDA(cudaRuntimeGetVersion(&version), "asking the runtime");
    snprintf(d->cuda, sizeof d->cuda, "%d.%d", version / 1000, version % 1000 / 10);
    CUDA(cudaDriverGetVersion(&version), "asking the driver");
    snprintf(d->driver, sizeof d->driver, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, 0), "asking the device");
    ask_nvml(d, bus);
    return MR_OK;
}

enum mr_status gpu_device_open(struct gpu_device *out, struct mr_error *err)
{
    int count = 0, driver = 0, runtime = 0;
    *out = (struct gpu_device){0};
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaError_t e = cudaGetDeviceCount(&count);
    if (!driver)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "no GPU can be used: no NVIDIA driver (libcuda) is "
                       "installed here");
    if (e == cudaErrorInsufficientDriver)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "no GPU can be used: the driver serves CUDA %d.%d, "
                       "too old for this program's %d.%d", driver / 1000, driver % 1000 / 10,
                       runtime / 1000, runtime % 1000 / 10);
    if (e) return failed(e, "no GPU can be used", err);
    if (!count) return mr_fail(err, MR_ERR_UNSUPPORTED, "no GPU can be used: there is none");
    CUDA(cudaSetDevice(0), "no GPU can be used");
    enum mr_status status = describe(out, err);
    if (status) return status;
    e = gpu_code_runs();
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "no GPU can be used: %s is sm_%d%d, and this "
                       "program holds code for " GPU_BUILT_FOR " alone", out->name, out->major, out->minor);
    if (e) return failed(e, "no GPU can be used", err);
    return MR_OK;
}
