/* What cuBLAS adds up, and in which order, on this GPU:
 *
 *     reveal record CASE.safetensors OUT-DIR    router logits at every row count of the row axis
 *     reveal trees OUT.safetensors [SECONDS]    the summation trees at those row counts (FPRev)
 *
 * record: CASE holds hidden_states [4, K] and gate_weight [N, K], bf16 (data/cublas-h200). The first
 * rows of each batch are those, the others random, which no result here depends on. Written are
 * logits.mROWS, logits.bf16_out_mROWS (widened) and logits.fp32_in_mROWS, fp32 [min(ROWS, 4), N],
 * as data/cublas-h200 has them, with the hidden states; and the same again of the first 128 experts
 * and 512 columns, with gate_weight too.
 *
 * trees: one file with N.K.KIND.mROWS.begin and .child (mr_tree of ref/arith/tree.h). Every row of a
 * GEMM is a row of masks, every column of W is ones; all columns must give the same bits. */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <string>
#include <vector>

#include "cublas.h"
extern "C" {
#include "../../ref/arith/reveal.h"
#include "../../ref/io/safetensors.h"
}

static const int row_axis[] = {1,  2,  4,   5,   6,   8,   16,  17,   18,   24,   32,   33,
                               64, 96, 128, 256, 257, 512, 513, 1024, 1025, 2048, 4096, 8192};
static const int most_rows = 8192;

static void check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "reveal: %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

static void check(enum mr_status s, const struct mr_error &err)
{
    if (s == MR_OK) return;
    fprintf(stderr, "reveal: %s\n", err.text);
    exit(mr_status_exit(s));
}

template <class T> static T *device(size_t n)
{
    T *p;
    check(cudaMalloc(&p, n * sizeof(T)), "memory");
    return p;
}

static bool is_fp32(enum gemm_kind kind)
{
    return kind == GEMM_FP32;
}

__global__ void narrow(const float *in, __nv_bfloat16 *out, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        out[i] = __float2bfloat16_rn(in[i]);
}

__global__ void widen(const __nv_bfloat16 *in, float *out, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        out[i] = __bfloat162float(in[i]);
}

/* Near N(0, 1): four uniform numbers of a splitmix64 by place. */
__global__ void fill(float *out, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        z ^= z >> 31;
        int sum = (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) +
                  (int)(z >> 48) - 2 * 65535;
        out[i] = __bfloat162float(__float2bfloat16_rn((float)sum * 0x1p-15f));
    }
}

/* One problem on the device: both types of both operands, room for any row count. */
struct problem {
    int n, k;
    float *a32, *w32, *d32;
    __nv_bfloat16 *a16, *w16, *d16;
};

static problem make_problem(int n, int k)
{
    size_t a = (size_t)most_rows * k, w = (size_t)n * k, d = (size_t)most_rows * n;
    return {n, k, device<float>(a), device<float>(w), device<float>(d),
            device<__nv_bfloat16>(a), device<__nv_bfloat16>(w), device<__nv_bfloat16>(d)};
}

static void free_problem(const problem &p)
{
    for (void *x : {(void *)p.a32, (void *)p.w32, (void *)p.d32, (void *)p.a16, (void *)p.w16,
                    (void *)p.d16})
        cudaFree(x);
}

/* The first `rows` rows; the result is in d32, widened if need be. D is poisoned before. */
static void run(const problem &p, enum gemm_kind kind, int rows)
{
    size_t d = (size_t)rows * p.n;
    check(cudaMemset(kind == GEMM_BF16_BF16 ? (void *)p.d16 : (void *)p.d32, 0xff,
                     d * (kind == GEMM_BF16_BF16 ? 2 : 4)), "poison");
    if (is_fp32(kind)) gemm(kind, rows, p.n, p.k, p.a32, p.w32, p.d32);
    else if (kind == GEMM_BF16_FP32) gemm(kind, rows, p.n, p.k, p.a16, p.w16, p.d32);
    else {
        gemm(kind, rows, p.n, p.k, p.a16, p.w16, p.d16);
        widen<<<512, 256>>>(p.d16, p.d32, d);
    }
    check(cudaGetLastError(), "launch");
}

struct recording {
    std::string name;
    std::vector<float> values;
    uint64_t shape[2];
    size_t index;
};

static std::string line_of(const char *command)
{
    char text[256] = "unknown";
    FILE *p = popen(command, "r");
    if (p && !fgets(text, sizeof text, p)) strcpy(text, "unknown");
    if (p) pclose(p);
    text[strcspn(text, "\n")] = 0;
    return text;
}

static void metadata(struct mr_writer *w)
{
    struct mr_error err;
    cudaDeviceProp prop;
    int runtime;
    check(cudaGetDeviceProperties(&prop, 0), "properties");
    check(cudaRuntimeGetVersion(&runtime), "version");
    std::string cuda = std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10);
    std::string driver = line_of("nvidia-smi --query-gpu=driver_version --format=csv,noheader");
    std::string cublas = std::to_string(gemm_version());
    const char *items[][2] = {{"program", "moeref gpu/reveal 1"}, {"gpu", prop.name},
                              {"driver", driver.c_str()}, {"cuda", cuda.c_str()},
                              {"cublas", cublas.c_str()}};
    for (auto &i : items) check(mr_writer_metadata(w, i[0], i[1], &err), err);
}

/* The logits of p at all row counts, whose first rows are `hidden` ([4, k] bf16). */
static std::vector<recording> record_problem(const problem &p, const void *hidden)
{
    static const char *const prefix[GEMM_KINDS] = {"logits.m", "logits.bf16_out_m",
                                                   "logits.fp32_in_m"};
    size_t all = (size_t)most_rows * p.k;
    fill<<<1024, 256>>>(p.a32, all);
    narrow<<<1024, 256>>>(p.a32, p.a16, all);
    check(cudaMemcpy(p.a16, hidden, (size_t)4 * p.k * 2, cudaMemcpyHostToDevice), "copy");
    widen<<<1024, 256>>>(p.a16, p.a32, all);
    std::vector<recording> out;
    for (int kind = 0; kind < GEMM_KINDS; kind++)
        for (int rows : row_axis) {
            uint64_t kept = rows < 4 ? (uint64_t)rows : 4;
            std::vector<float> d[2];
            for (auto &x : d) {
                run(p, (enum gemm_kind)kind, rows);
                x.resize(kept * p.n);
                check(cudaMemcpy(x.data(), p.d32, x.size() * 4, cudaMemcpyDeviceToHost), "gemm");
            }
            if (memcmp(d[0].data(), d[1].data(), d[0].size() * 4))
                printf("%d x %d, %s, %d rows: two runs differ\n", p.n, p.k, gemm_kind_names[kind],
                       rows);
            out.push_back({prefix[kind] + std::to_string(rows), d[0], {kept, (uint64_t)p.n}, 0});
        }
    return out;
}

/* gate: NULL to leave it out, if the source holds it. */
static void write_recordings(const std::string &path, std::vector<recording> &r, const problem &p,
                             const void *hidden, const void *gate)
{
    struct mr_error err;
    struct mr_writer *w;
    size_t h = 0, g = 0;
    check(mr_writer_new(path.c_str(), &w, &err), err);
    metadata(w);
    uint64_t hidden_shape[] = {4, (uint64_t)p.k}, gate_shape[] = {(uint64_t)p.n, (uint64_t)p.k};
    check(mr_writer_declare(w, "hidden_states", MR_BF16, 2, hidden_shape, &h, &err), err);
    if (gate)
        check(mr_writer_declare(w, "gate_weight", MR_BF16, 2, gate_shape, &g, &err), err);
    for (auto &x : r)
        check(mr_writer_declare(w, x.name.c_str(), MR_F32, 2, x.shape, &x.index, &err), err);
    check(mr_writer_begin(w, &err), err);
    check(mr_writer_put(w, h, 0, hidden, (uint64_t)4 * p.k * 2, &err), err);
    if (gate) check(mr_writer_put(w, g, 0, gate, (uint64_t)p.n * p.k * 2, &err), err);
    for (auto &x : r)
        check(mr_writer_put(w, x.index, 0, x.values.data(), x.values.size() * 4, &err), err);
    check(mr_writer_finish(w, &err), err);
    printf("%s: %zu recordings\n", path.c_str(), r.size());
}

/* Recordings that the source file has too, under the same name, must be equal. */
static int compare(const struct mr_safetensors *source, const std::vector<recording> &r)
{
    int same = 0, differ = 0;
    for (auto &x : r) {
        struct mr_tensor t;
        if (!mr_safetensors_find(source, x.name.c_str(), &t)) continue;
        bool equal = !memcmp(t.data, x.values.data(), x.values.size() * 4);
        if (!equal) printf("%s differs from the source's\n", x.name.c_str());
        (equal ? same : differ)++;
    }
    printf("of the source's own recordings %d are the same, %d differ\n", same, differ);
    return differ != 0;
}

static int record(const char *source_path, const std::string &folder)
{
    struct mr_error err;
    struct mr_safetensors *source;
    struct mr_tensor h, g;
    check(mr_safetensors_open(source_path, &source, &err), err);
    if (!mr_safetensors_find(source, "hidden_states", &h) ||
        !mr_safetensors_find(source, "gate_weight", &g) || h.dtype != MR_BF16 ||
        g.dtype != MR_BF16 || h.shape[0] != 4 || h.shape[1] != g.shape[1]) {
        fprintf(stderr, "reveal: %s: no hidden_states [4, K] and gate_weight [N, K] in bf16\n",
                source_path);
        return 3;
    }
    problem p = make_problem((int)g.shape[0], (int)g.shape[1]);
    check(cudaMemcpy(p.w16, g.data, (size_t)p.n * p.k * 2, cudaMemcpyHostToDevice), "copy");
    widen<<<1024, 256>>>(p.w16, p.w32, (size_t)p.n * p.k);
    std::vector<recording> r = record_problem(p, h.data);
    std::string name = "/n" + std::to_string(p.n) + "k" + std::to_string(p.k) + ".safetensors";
    int bad = compare(source, r);
    write_recordings(folder + name, r, p, h.data, nullptr);

    const int n = 128, k = 512;
    std::vector<uint16_t> hidden(4 * k), gate(n * k);
    for (int i = 0; i < 4; i++)
        memcpy(&hidden[i * k], (const uint16_t *)h.data + (size_t)i * p.k, k * 2);
    for (int i = 0; i < n; i++)
        memcpy(&gate[i * k], (const uint16_t *)g.data + (size_t)i * p.k, k * 2);
    free_problem(p);
    p = make_problem(n, k);
    check(cudaMemcpy(p.w16, gate.data(), gate.size() * 2, cudaMemcpyHostToDevice), "copy");
    widen<<<1024, 256>>>(p.w16, p.w32, (size_t)n * k);
    r = record_problem(p, hidden.data());
    write_recordings(folder + "/n128k512.safetensors", r, p, hidden.data(), gate.data());
    mr_safetensors_close(source);
    return bad;
}

/* Masks through one GEMM of `rows` rows at a time. */
struct masks {
    const problem *p;
    enum gemm_kind kind;
    int rows;
    size_t calls;
};

/* Columns that differ from column 0, over the rows; column 0 itself is gathered. */
__global__ void gather(const float *d, int n, int rows, float *first, int *differ)
{
    int r = blockIdx.x;
    for (int j = threadIdx.x; j < n; j += blockDim.x)
        if (__float_as_uint(d[(size_t)r * n + j]) != __float_as_uint(d[(size_t)r * n]))
            atomicAdd(differ, 1);
    if (threadIdx.x == 0) first[r] = d[(size_t)r * n];
}

static enum mr_status sum_masks(void *context, const float *rows, size_t count, size_t terms,
                                float *out, struct mr_error *err)
{
    struct masks *m = (struct masks *)context;
    const problem &p = *m->p;
    static float *first = device<float>(most_rows);
    static int *differ = device<int>(1);
    for (size_t at = 0; at < count; at += (size_t)m->rows) {
        size_t now = count - at < (size_t)m->rows ? count - at : (size_t)m->rows;
        size_t values = now * terms;
        check(cudaMemcpy(p.a32, rows + at * terms, values * 4, cudaMemcpyHostToDevice), "masks");
        if (!is_fp32(m->kind)) narrow<<<1024, 256>>>(p.a32, p.a16, values);
        check(cudaMemset(differ, 0, 4), "memset");
        run(p, m->kind, m->rows);
        gather<<<(int)now, 128>>>(p.d32, p.n, (int)now, first, differ);
        int columns;
        check(cudaMemcpy(out + at, first, now * 4, cudaMemcpyDeviceToHost), "sums");
        check(cudaMemcpy(&columns, differ, 4, cudaMemcpyDeviceToHost), "sums");
        m->calls++;
        if (columns)
            return mr_fail(err, MR_ERR_VALUE, "%d results differ from those of column 0", columns);
    }
    return MR_OK;
}

struct revealed {
    std::string name;
    struct mr_tree tree;
    size_t begin, child;
};

static double seconds(void)
{
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static void write_trees(const char *path, std::vector<revealed> &trees)
{
    struct mr_error err;
    struct mr_writer *w;
    check(mr_writer_new(path, &w, &err), err);
    metadata(w);
    for (auto &t : trees) {
        uint64_t begin = t.tree.nodes + 1, child = t.tree.terms + t.tree.nodes - 1;
        check(mr_writer_declare(w, (t.name + ".begin").c_str(), MR_U32, 1, &begin, &t.begin, &err),
              err);
        check(mr_writer_declare(w, (t.name + ".child").c_str(), MR_U32, 1, &child, &t.child, &err),
              err);
    }
    check(mr_writer_begin(w, &err), err);
    for (auto &t : trees) {
        uint64_t begin = t.tree.nodes + 1, child = t.tree.terms + t.tree.nodes - 1;
        check(mr_writer_put(w, t.begin, 0, t.tree.begin, begin * 4, &err), err);
        check(mr_writer_put(w, t.child, 0, t.tree.child, child * 4, &err), err);
    }
    check(mr_writer_finish(w, &err), err);
}

static int reveal_trees(const char *path, double limit)
{
    static const int shapes[][2] = {{128, 512}, {288, 4096}, {256, 7168}};
    double start = seconds();
    std::vector<revealed> trees;
    int refused = 0, skipped = 0;
    for (auto &shape : shapes) {
        problem p = make_problem(shape[0], shape[1]);
        std::vector<float> ones((size_t)p.n * p.k, 1.0f);
        check(cudaMemcpy(p.w32, ones.data(), ones.size() * 4, cudaMemcpyHostToDevice), "copy");
        narrow<<<1024, 256>>>(p.w32, p.w16, ones.size());
        for (enum gemm_kind kind : {GEMM_BF16_FP32, GEMM_FP32})
            for (int rows : row_axis) {
                if (seconds() - start > limit) {
                    skipped++;
                    continue;
                }
                check(cudaMemset(p.a32, 0, (size_t)most_rows * p.k * 4), "memset");
                check(cudaMemset(p.a16, 0, (size_t)most_rows * p.k * 2), "memset");
                struct masks m = {&p, kind, rows, 0};
                struct mr_summer summer = {sum_masks, &m};
                struct mr_reveal_options options = {};
                mr_reveal_masks(is_fp32(kind) ? "fp32" : "bf16", &options);
                options.seed = 1;
                struct mr_reveal_stats stats = {};
                struct mr_error err = {};
                revealed r = {std::to_string(p.n) + "." + std::to_string(p.k) + "." +
                                  gemm_kind_names[kind] + ".m" + std::to_string(rows),
                              {}, 0, 0};
                double t = seconds();
                enum mr_status s = mr_reveal(&summer, (size_t)p.k, &options, &r.tree, &stats, &err);
                printf("%-24s ", r.name.c_str());
                if (s == MR_OK) {
                    printf("%zu nodes, widest %zu, %zu GEMMs, %.2f s\n", r.tree.nodes,
                           mr_tree_widest(&r.tree), m.calls, seconds() - t);
                    trees.push_back(r);
                } else {
                    printf("refused: %s (%.2f s)\n", err.text, seconds() - t);
                    refused++;
                }
                fflush(stdout);
            }
        free_problem(p);
    }
    write_trees(path, trees);
    printf("%s: %zu trees, %d refused, %d not tried for want of time\n", path, trees.size(), refused,
           skipped);
    for (auto &t : trees) mr_tree_free(&t.tree);
    return refused != 0;
}

int main(int argc, char **argv)
{
    bool recording = argc == 4 && !strcmp(argv[1], "record");
    bool revealing = (argc == 3 || argc == 4) && !strcmp(argv[1], "trees");
    if (!recording && !revealing) {
        fprintf(stderr, "usage: reveal record CASE.safetensors OUT-DIR\n"
                        "       reveal trees OUT.safetensors [SECONDS]\n");
        return 2;
    }
    gemm_start();
    printf("cuBLAS %d\n", gemm_version());
    return recording ? record(argv[2], argv[3])
                     : reveal_trees(argv[2], argc > 3 ? atof(argv[3]) : 1e9);
}
