/* Router logits of cuBLAS at every row count. */
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "problem.h"

struct recording {
    std::string name;
    std::vector<float> values;
    uint64_t shape[2];
    size_t index;
};

/* The logits of p at all row counts, whose first rows are `hidden` ([4, k] bf16). */
static std::vector<recording> record_problem(const problem &p, const void *hidden)
{
    static const char *const prefix[GEMM_KINDS] = {"logits.m", "logits.bf16_out_m",
                                                   "logits.fp32_in_m"};
    size_t all = (size_t)MOST_ROWS * p.k;
    fill(p.a32, all);
    narrow(p.a32, p.a16, all);
    check(cudaMemcpy(p.a16, hidden, (size_t)4 * p.k * 2, cudaMemcpyHostToDevice), "copy");
    widen(p.a16, p.a32, all);
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
    write_metadata(w);
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

int record(const char *source_path, const std::string &folder)
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
    widen(p.w16, p.w32, (size_t)p.n * p.k);
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
    widen(p.w16, p.w32, (size_t)n * k);
    r = record_problem(p, hidden.data());
    write_recordings(folder + "/n128k512.safetensors", r, p, hidden.data(), gate.data());
    mr_safetensors_close(source);
    return bad;
}
