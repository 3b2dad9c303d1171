/* The order in which cuBLAS adds, revealed by masks. */
#include <chrono>
#include <cstdio>
#include <vector>

#include "problem.h"
extern "C" {
#include "../../ref/arith/reveal.h"
#include "../../ref/arith/tree_line.h"
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
    static float *first;
    static int *differ;
    if (!first) {
        check(cudaMalloc(&first, MOST_ROWS * sizeof(float)), "memory");
        check(cudaMalloc(&differ, sizeof(int)), "memory");
    }
    for (size_t at = 0; at < count; at += (size_t)m->rows) {
        size_t now = count - at < (size_t)m->rows ? count - at : (size_t)m->rows;
        size_t values = now * terms;
        check(cudaMemcpy(p.a32, rows + at * terms, values * 4, cudaMemcpyHostToDevice), "masks");
        if (m->kind != GEMM_FP32) narrow(p.a32, p.a16, values);
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
    write_metadata(w);
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

/* The shortest line with this tree, or "-". */
static std::string line_of_tree(const struct mr_tree &tree, enum gemm_kind kind)
{
    struct mr_sum_shape shape;
    size_t found = 0;
    struct mr_error err;
    char text[MR_SUM_TEXT];
    check(mr_tree_lines(&tree, kind == GEMM_FP32 ? "fp32" : "bf16", &shape, 1, &found, &err), err);
    if (!found) return "-";
    mr_sum_print(&shape, text, sizeof text);
    return text;
}

int reveal_trees(const char *path, double limit)
{
    static const int shapes[][2] = {{128, 512}, {288, 4096}, {256, 7168}};
    double start = seconds();
    std::vector<revealed> trees;
    int refused = 0, skipped = 0;
    for (auto &shape : shapes) {
        problem p = make_problem(shape[0], shape[1]);
        std::vector<float> ones((size_t)p.n * p.k, 1.0f);
        check(cudaMemcpy(p.w32, ones.data(), ones.size() * 4, cudaMemcpyHostToDevice), "copy");
        narrow(p.w32, p.w16, ones.size());
        for (enum gemm_kind kind : {GEMM_BF16_FP32, GEMM_FP32})
            for (int rows : row_axis) {
                if (seconds() - start > limit) {
                    skipped++;
                    continue;
                }
                check(cudaMemset(p.a32, 0, (size_t)MOST_ROWS * p.k * 4), "memset");
                check(cudaMemset(p.a16, 0, (size_t)MOST_ROWS * p.k * 2), "memset");
                struct masks m = {&p, kind, rows, 0};
                struct mr_summer summer = {sum_masks, &m};
                struct mr_reveal_options options = {};
                mr_reveal_masks(kind == GEMM_FP32 ? "fp32" : "bf16", &options);
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
                    printf("%-22s %zu nodes, widest %zu, %zu GEMMs, %.2f s\n",
                           line_of_tree(r.tree, kind).c_str(), r.tree.nodes,
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
