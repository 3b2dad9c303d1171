/* Sweeps scalar functions over all inputs on a GPU, and the CPU model of ref/arith/cuda.h against
 * it, on the same machine.
 *
 *     sweep OUT [--dump] [--seconds S]
 *
 * OUT/sweep.safetensors: for each function U64 [4096], the checksums of the outputs for each 2^20
 * inputs in turn (sets of pairs for quotients). OUT/sweep.txt: mismatches of each function, exactly.
 * OUT/mismatches.txt: the first few of each block that differs. --dump: OUT/dump/NAME.u32, outputs
 * from which recover.c makes the tables. The comparison stops after S seconds (300). */
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>

#include "kernels.h"
#include "pairs.h"

extern "C" {
#include "../../ref/arith/cuda.h"
}

#define VERSION "1"
static const uint32_t N = 1u << BLOCK_BITS;

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static FILE *open_out(const std::string &path, const char *mode)
{
    FILE *file = fopen(path.c_str(), mode);
    if (!file) {
        perror(path.c_str());
        exit(4);
    }
    return file;
}

struct entry {
    std::string label, model;
    int id; /* of the model, or -1 */
    const struct swept *one;
    const struct swept2 *two;
    int how; /* enum mr_cuda_quotient */
    std::vector<uint64_t> sums;
};

struct result {
    uint64_t mismatches = 0;
    int blocks = 0, compared = 0;
    double seconds = 0;
};

/* Compares all blocks with the model, on all processors. */
static result compare(const entry &e, FILE *log, double until)
{
    result r;
    std::atomic<uint32_t> next{0};
    std::mutex lock;
    uint32_t *device;
    int logged = 0;
    CHECK(cudaMalloc(&device, N * sizeof *device));
    double start = now();
    auto work = [&]() {
        std::vector<float> a(N), b(e.two ? N : 0), y(N);
        std::vector<uint32_t> gpu(N);
        for (;;) {
            uint32_t block = next++;
            if (block >= BLOCKS || now() > until) return;
            /* Blocks in an order that soon meets all exponents. */
            block = block * 1597 & (BLOCKS - 1);
            for (uint32_t i = 0; i < N; i++) {
                struct pair_words p = {block << BLOCK_BITS | i, 0};
                if (e.two) p = pair_of(block, i);
                memcpy(&a[i], &p.a, 4);
                if (e.two) memcpy(&b[i], &p.b, 4);
            }
            if (e.two)
                mr_cuda_divide((enum mr_cuda_quotient)e.how, a.data(), b.data(), N, y.data());
            else
                mr_cuda_apply((enum mr_cuda_id)e.id, a.data(), N, y.data());
            bool same = mr_cuda_checksum((const uint32_t *)y.data(), N) == e.sums[block];
            std::lock_guard<std::mutex> hold(lock);
            r.compared++;
            if (same) continue;
            if (e.two) e.two->values(block, device);
            else e.one->values(block << BLOCK_BITS, N, device);
            CHECK(cudaMemcpy(gpu.data(), device, N * sizeof *device, cudaMemcpyDeviceToHost));
            uint64_t bad = 0;
            for (uint32_t i = 0; i < N; i++) {
                uint32_t m, wa, wb = 0;
                memcpy(&m, &y[i], 4);
                if (m == gpu[i]) continue;
                memcpy(&wa, &a[i], 4);
                if (e.two) memcpy(&wb, &b[i], 4);
                if (bad++ < 2 && logged++ < 300)
                    fprintf(log, "%s %08x %08x gpu %08x model %08x\n", e.label.c_str(), wa, wb,
                            gpu[i], m);
            }
            if (bad == 0) fprintf(log, "%s block %u: checksum differs, values do not\n", e.label.c_str(), block);
            r.mismatches += bad;
            r.blocks++;
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < std::thread::hardware_concurrency(); i++) threads.emplace_back(work);
    for (auto &t : threads) t.join();
    CHECK(cudaFree(device));
    r.seconds = now() - start;
    return r;
}

/* Outputs for n inputs from `first` on, every `stride`-th. */
static void dump(const std::vector<entry> &all, const char *label, uint32_t first, uint32_t n,
                 uint32_t stride, const std::string &path)
{
    for (const entry &e : all) {
        if (e.label != label || !e.one) continue;
        uint32_t *device;
        std::vector<uint32_t> host(n);
        CHECK(cudaMalloc(&device, (size_t)n * 4));
        e.one->values(first, n, device);
        CHECK(cudaMemcpy(host.data(), device, (size_t)n * 4, cudaMemcpyDeviceToHost));
        CHECK(cudaFree(device));
        FILE *file = open_out(path, "wb");
        for (uint32_t i = 0; i < n; i += stride) fwrite(&host[i], 4, 1, file);
        fclose(file);
    }
}

static std::string metadata()
{
    cudaDeviceProp p;
    int driver = 0, runtime = 0;
    CHECK(cudaGetDeviceProperties(&p, 0));
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    char text[1024], name[128] = "unknown";
    FILE *smi = popen("nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null", "r");
    if (smi && fgets(name, sizeof name, smi)) name[strcspn(name, "\r\n")] = 0;
    if (smi) pclose(smi);
    snprintf(text, sizeof text,
             "\"gpu\":\"%s\",\"sm\":\"%d.%d\",\"driver\":\"%s\",\"driver_cuda\":\"%d\",\"cuda_runtime\":"
             "\"%d\",\"nvcc\":\"%d.%d.%d\",\"target\":\"sm_90a\",\"program\":\"gpu/sweep %s\",\"flags\":"
             "\"plain names: default; .ftz: -ftz=true; .fast: -use_fast_math\"",
             p.name, p.major, p.minor, name, driver, runtime, __CUDACC_VER_MAJOR__,
             __CUDACC_VER_MINOR__, __CUDACC_VER_BUILD__, VERSION);
    return text;
}

static void write_sums(const std::vector<entry> &all, const std::string &path)
{
    std::string header = "{\"__metadata__\":{" + metadata() + "}";
    size_t offset = 0;
    for (const entry &e : all) {
        if (e.label != e.model) continue;
        char text[256];
        snprintf(text, sizeof text, ",\"%s\":{\"dtype\":\"U64\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}",
                 e.label.c_str(), (int)BLOCKS, offset, offset + BLOCKS * 8);
        offset += BLOCKS * 8;
        header += text;
    }
    header += "}";
    while (header.size() % 8) header += ' ';
    FILE *file = open_out(path, "wb");
    uint64_t bytes = header.size();
    fwrite(&bytes, 8, 1, file);
    fwrite(header.data(), 1, bytes, file);
    for (const entry &e : all)
        if (e.label == e.model) fwrite(e.sums.data(), 8, BLOCKS, file);
    fclose(file);
}

int main(int argc, char **argv)
{
    std::string out;
    bool dumps = false;
    double seconds = 300;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--dump") == 0) dumps = true;
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) seconds = atof(argv[++i]);
        else out = argv[i];
    }
    if (out.empty()) return fprintf(stderr, "sweep OUT [--dump] [--seconds S]\n"), 2;
    double start = now();
    std::vector<entry> all;
    const struct swept_list lists[] = {sweep_functions_0(), sweep_functions_1(), sweep_functions_2()};
    for (const struct swept_list &list : lists)
        for (int i = 0; i < list.count; i++)
            all.push_back({list.at[i].label, list.at[i].model, mr_cuda_find(list.at[i].model),
                           &list.at[i], NULL, 0, std::vector<uint64_t>(BLOCKS)});
    for (int i = 0; i < 4; i++)
        all.push_back({sweep_quotients[i].label, sweep_quotients[i].label, 0, NULL,
                       &sweep_quotients[i], i, std::vector<uint64_t>(BLOCKS)});
    uint64_t *sums;
    CHECK(cudaMalloc(&sums, BLOCKS * 8));
    for (entry &e : all) {
        CHECK(cudaMemset(sums, 0xff, BLOCKS * 8));
        if (e.two) e.two->checksums(sums);
        else e.one->checksums(sums);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(e.sums.data(), sums, BLOCKS * 8, cudaMemcpyDeviceToHost));
    }
    CHECK(cudaFree(sums));
    write_sums(all, out + "/sweep.safetensors");
    printf("checksums of %zu functions: %.1f s\n{%s}\n", all.size(), now() - start, metadata().c_str());
    fflush(stdout);
    if (dumps) {
        std::string to = out + "/dump/";
        mkdir(to.c_str(), 0777);
        dump(all, "ex2.approx.ftz", 0x3f800000, 1 << 23, 1, to + "ex2.u32");
        dump(all, "rcp.approx.ftz", 0x3f800000, 1 << 23, 1, to + "rcp.u32");
        dump(all, "lg2.approx.ftz", 0x3f800000, 1 << 23, 1, to + "lg2.u32");
        dump(all, "rsqrt.approx.ftz", 0x3f800000, 1 << 24, 1, to + "rsqrt.u32");
        dump(all, "sqrt.approx.ftz", 0x3f800000, 1 << 24, 1, to + "sqrt.u32");
        /* tanh ignores the low four bits of a fraction, it seems: all of it, to see. */
        dump(all, "tanh.approx", 0, 0x7f800000, 16, to + "tanh16.u32");
        dump(all, "tanh.approx", 0x3e800000, 1 << 23, 1, to + "tanh.u32");
        return 0;
    }
    FILE *log = open_out(out + "/mismatches.txt", "w"), *table = open_out(out + "/sweep.txt", "w");
    fprintf(table, "# {%s}\n# function, model, blocks compared, blocks that differ, mismatches\n",
            metadata().c_str());
    for (const entry &e : all) {
        if (e.id < 0) {
            fprintf(table, "%s %s - - no model\n", e.label.c_str(), e.model.c_str());
            continue;
        }
        result r = compare(e, log, start + seconds);
        fprintf(table, "%s %s %d %d %llu\n", e.label.c_str(), e.model.c_str(), r.compared, r.blocks,
                (unsigned long long)r.mismatches);
        printf("%-28s %4d blocks, %4d differ, %10llu mismatches, %.1f s\n", e.label.c_str(),
               r.compared, r.blocks, (unsigned long long)r.mismatches, r.seconds);
        fflush(stdout);
        fflush(table);
        fflush(log);
    }
    fclose(table);
    fclose(log);
    return 0;
}
