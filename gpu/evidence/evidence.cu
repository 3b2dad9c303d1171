/* Records what the tensor cores of an sm_90a GPU do with the tiles of tests/support/mma_classes.h,
 * for every instruction of instructions.cu:
 *
 *     evidence OUT.safetensors [FIRST-TILE [TILES [no-inputs]]]
 *
 * SET.a [tiles, classes, 64, k], SET.b [.., 8, k], SET.c [.., 64, 8] and INSTRUCTION.d [.., 64, 8]
 * are encodings (U8, U16, U32); INSTRUCTION names its set in the metadata. The class "integers" is
 * checked here, against plain sums: a wrong fragment or descriptor layout ends the program.
 * Everything runs twice, over differently poisoned memory, and must agree. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "instructions.h"
extern "C" {
#include "../../ref/io/safetensors.h"
}

static void check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "evidence: %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

static void check(enum mr_status s, const struct mr_error &err)
{
    if (s == MR_OK) return;
    fprintf(stderr, "evidence: %s\n", err.text);
    exit(mr_status_exit(s));
}

static const struct mma_set *find_set(const char *name)
{
    for (int s = 0; s < mma_set_count; s++)
        if (!strcmp(mma_sets[s].name, name)) return &mma_sets[s];
    fprintf(stderr, "evidence: no set %s\n", name);
    exit(1);
}

static int bytes_of(const struct mma_format *f)
{
    return f->bits / 8;
}

static enum mr_dtype dtype_of(const struct mma_format *f)
{
    return f->bits == 8 ? MR_U8 : f->bits == 16 ? MR_U16 : MR_U32;
}

static void pack(const uint32_t *words, int n, const struct mma_format *f, void *out)
{
    for (int i = 0; i < n; i++) memcpy((char *)out + i * bytes_of(f), &words[i], bytes_of(f));
}

/* All tiles of one set: [tiles][classes]. */
static std::vector<mma_tile> make_tiles(const struct mma_set *set, int first, int tiles)
{
    std::vector<mma_tile> all((size_t)tiles * mma_class_count);
    for (int t = 0; t < tiles; t++)
        for (int c = 0; c < mma_class_count; c++)
            mma_tile_make(set, c, (uint32_t)(first + t), &all[(size_t)t * mma_class_count + c]);
    return all;
}

/* The value of a small integer's encoding. */
static int whole(const struct mma_format *f, uint32_t w)
{
    if (!f->exponent) return f->bits == 8 ? (int8_t)w : (int32_t)w;
    int e = (int)(w >> (f->fraction + f->low) & ((1u << f->exponent) - 1));
    if (!e) return 0;
    double v = 1u << f->fraction | (w >> f->low & ((1u << f->fraction) - 1));
    int down = f->fraction + f->bias - e;
    for (; down > 0; down--) v /= 2;
    for (; down < 0; down++) v *= 2;
    return w >> (f->bits - 1) & 1 ? (int)-v : (int)v;
}

/* Wrong results among the 512 of an "integers" tile. */
static int wrong_integers(const struct instruction &in, const struct mma_set *set,
                          const struct mma_tile &t, const uint32_t *d)
{
    bool negate = (strstr(in.name, "+na") != nullptr) != (strstr(in.name, "+nb") != nullptr);
    int wrong = 0;
    for (int i = 0; i < MMA_ROWS; i++)
        for (int j = 0; j < MMA_COLS; j++) {
            int at = i * MMA_COLS + j, sum = 0;
            for (int p = 0; p < in.k; p++)
                sum += whole(set->a, t.a[i * set->k + p]) * whole(set->b, t.b[j * set->k + p]);
            if (negate) sum = -sum;
            if (!strstr(in.name, "+z")) sum += whole(set->c, t.c[at]);
            wrong += whole(set->c, d[at]) != sum;
        }
    return wrong;
}

/* D of all tiles; the two runs must give the same. */
static std::vector<uint32_t> launch(const struct instruction &in, const device_tile *tiles,
                                    int count, uint32_t *device_d)
{
    size_t words = (size_t)count * MMA_ROWS * MMA_COLS;
    std::vector<uint32_t> d[2];
    for (int run = 0; run < 2; run++) {
        check(cudaMemset(device_d, run ? 0xa5 : 0x3c, words * 4), "memset");
        in.launch(tiles, device_d, count);
        check(cudaGetLastError(), in.name);
        check(cudaDeviceSynchronize(), in.name);
        d[run].resize(words);
        check(cudaMemcpy(d[run].data(), device_d, words * 4, cudaMemcpyDeviceToHost), "copy");
    }
    if (d[0] != d[1]) {
        fprintf(stderr, "evidence: %s: two runs differ\n", in.name);
        exit(1);
    }
    return d[0];
}

struct output {
    std::string name;
    const struct mma_format *format;
    std::vector<uint32_t> words;
    int rows, cols;
    size_t index;
};

static std::string one_line(const char *command)
{
    char text[256] = "unknown";
    FILE *p = popen(command, "r");
    if (p && !fgets(text, sizeof text, p)) strcpy(text, "unknown");
    if (p) pclose(p);
    text[strcspn(text, "\n")] = 0;
    return text;
}

static void write_file(const char *path, std::vector<output> &outputs, int first, int tiles)
{
    struct mr_error err = {};
    struct mr_writer *w;
    check(mr_writer_new(path, &w, &err), err);
    cudaDeviceProp p;
    int runtime;
    check(cudaGetDeviceProperties(&p, 0), "properties");
    check(cudaRuntimeGetVersion(&runtime), "version");
    std::string cuda = std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10);
    std::string capability = "sm_" + std::to_string(p.major) + std::to_string(p.minor);
    std::string driver = one_line("nvidia-smi --query-gpu=driver_version --format=csv,noheader");
    std::string classes, sets;
    for (int c = 0; c < mma_class_count; c++)
        classes += std::string(c ? "," : "") + mma_classes[c];
    for (int i = 0; i < instruction_count; i++)
        sets += std::string(i ? "," : "") + instructions[i].name + ":" + instructions[i].set + ":" +
                std::to_string(instructions[i].k);
    std::string number = std::to_string(first);
    const char *metadata[][2] = {
        {"program", "moeref gpu/evidence 1"}, {"gpu", p.name}, {"capability", capability.c_str()},
        {"driver", driver.c_str()}, {"cuda", cuda.c_str()}, {"first_tile", number.c_str()},
        {"classes", classes.c_str()}, {"instructions", sets.c_str()},
    };
    for (auto &m : metadata) check(mr_writer_metadata(w, m[0], m[1], &err), err);
    for (auto &o : outputs) {
        uint64_t shape[] = {(uint64_t)tiles, (uint64_t)mma_class_count, (uint64_t)o.rows,
                            (uint64_t)o.cols};
        check(mr_writer_declare(w, o.name.c_str(), dtype_of(o.format), 4, shape, &o.index, &err),
              err);
    }
    check(mr_writer_begin(w, &err), err);
    for (auto &o : outputs) {
        std::vector<char> bytes(o.words.size() * bytes_of(o.format));
        pack(o.words.data(), (int)o.words.size(), o.format, bytes.data());
        check(mr_writer_put(w, o.index, 0, bytes.data(), bytes.size(), &err), err);
    }
    check(mr_writer_finish(w, &err), err);
}

static void add_inputs(std::vector<output> &outputs, const struct mma_set *set,
                       const std::vector<mma_tile> &tiles)
{
    std::string name = set->name;
    output a = {name + ".a", set->a, {}, MMA_ROWS, set->k, 0};
    output b = {name + ".b", set->b, {}, MMA_COLS, set->k, 0};
    output c = {name + ".c", set->c, {}, MMA_ROWS, MMA_COLS, 0};
    for (const mma_tile &t : tiles) {
        a.words.insert(a.words.end(), t.a, t.a + MMA_ROWS * set->k);
        b.words.insert(b.words.end(), t.b, t.b + MMA_COLS * set->k);
        c.words.insert(c.words.end(), t.c, t.c + MMA_ROWS * MMA_COLS);
    }
    outputs.push_back(a);
    outputs.push_back(b);
    outputs.push_back(c);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 5) {
        fprintf(stderr, "usage: evidence OUT.safetensors [FIRST-TILE [TILES [no-inputs]]]\n");
        return 2;
    }
    int first = argc > 2 ? atoi(argv[2]) : 0, tiles = argc > 3 ? atoi(argv[3]) : 1;
    if (first < 0 || tiles < 1 || tiles > 1000) return 2;
    int count = tiles * mma_class_count, bad = 0;
    device_tile *device_tiles;
    uint32_t *device_d;
    check(cudaMalloc(&device_tiles, sizeof(device_tile) * count), "memory");
    check(cudaMalloc(&device_d, (size_t)count * MMA_ROWS * MMA_COLS * 4), "memory");
    std::vector<output> outputs;
    for (int s = 0; s < mma_set_count; s++) {
        const struct mma_set *set = &mma_sets[s];
        std::vector<mma_tile> made = make_tiles(set, first, tiles);
        std::vector<device_tile> packed(count);
        for (int t = 0; t < count; t++) {
            pack(made[t].a, MMA_ROWS * set->k, set->a, packed[t].a);
            pack(made[t].b, MMA_COLS * set->k, set->b, packed[t].b);
            memcpy(packed[t].c, made[t].c, sizeof packed[t].c);
        }
        check(cudaMemcpy(device_tiles, packed.data(), sizeof(device_tile) * count,
                         cudaMemcpyHostToDevice), "copy");
        if (argc < 5) add_inputs(outputs, set, made);
        for (int i = 0; i < instruction_count; i++) {
            const struct instruction &in = instructions[i];
            if (find_set(in.set) != set) continue;
            std::vector<uint32_t> d = launch(in, device_tiles, count, device_d);
            int wrong = wrong_integers(in, set, made[0], d.data());
            bool swapped = wrong && (strstr(in.name, "+ta") || strstr(in.name, "+tb"));
            if (swapped) {
                instructions_swap_strides(1);
                d = launch(in, device_tiles, count, device_d);
                wrong = wrong_integers(in, set, made[0], d.data());
                instructions_swap_strides(0);
            }
            printf("%-36s %s%s\n", in.name, wrong ? "WRONG LAYOUT" : "integers right",
                   swapped ? " (strides swapped)" : "");
            bad += wrong != 0;
            outputs.push_back({std::string(in.name) + ".d", set->c, d, MMA_ROWS, MMA_COLS, 0});
        }
    }
    write_file(argv[1], outputs, first, tiles);
    printf("evidence: %d instructions, %d tiles each, %d with a wrong layout -> %s\n",
           instruction_count, count, bad, argv[1]);
    return bad != 0;
}
