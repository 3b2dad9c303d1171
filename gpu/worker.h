/* What a child does. */
#ifndef MOEREF_GPU_WORKER_H
#define MOEREF_GPU_WORKER_H

/* argv[0]: "device", "run", "bench" or "probe"; exit status. */
int gpu_worker(int argc, char **argv);
int gpu_worker_run(int argc, char **argv);
int gpu_worker_bench(int argc, char **argv);
int gpu_worker_probe(int argc, char **argv);

struct gpu_device;
struct gpu_memory;
struct mr_kernel;
/* Opens the device if the kernel needs one, and says so; false if that failed. */
int gpu_worker_open(const struct mr_kernel *kernel, struct gpu_device *device,
                    const struct gpu_memory **memory);

#endif
