#include "registry.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                     \
    do {                                              \
        enum mr_status try_status_ = (call);          \
        if (try_status_ != MR_OK) return try_status_; \
    } while (0)

enum { MOST = 1024 };

static const struct mr_kernel *kernels[MOST];
static size_t count;
static bool sorted, overflow;

void mr_kernel_announce(const struct mr_kernel *kernel)
{
    if (count == MOST) {
        overflow = true;
        return;
    }
    kernels[count++] = kernel;
    sorted = false;
}

static int compare(const void *a, const void *b)
{
    const struct mr_kernel *x = *(const struct mr_kernel *const *)a;
    const struct mr_kernel *y = *(const struct mr_kernel *const *)b;
    int families = strcmp(x->family, y->family);
    return families ? families : strcmp(x->name, y->name);
}

static void sort(void)
{
    if (!sorted) qsort(kernels, count, sizeof *kernels, compare);
    sorted = true;
}

size_t gpu_kernel_count(void)
{
    return count;
}

const struct mr_kernel *gpu_kernel_at(size_t i)
{
    sort();
    return kernels[i];
}

const struct mr_kernel *gpu_kernel_find(const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(kernels[i]->name, name)) return kernels[i];
    return NULL;
}

void gpu_kernel_names(char *text, size_t size)
{
    size_t used = 0;
    sort();
    text[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "",
                                 kernels[i]->name);
}

const char *gpu_type_name(int type)
{
    return type & MR_KERNEL_FP32 ? "fp32" : type & MR_KERNEL_FP16 ? "fp16"
           : type & MR_KERNEL_BF16 ? "bf16" : "-";
}

/* Names become names of files. */
static bool is_name(const char *text, const char *allowed)
{
    size_t n = text ? strlen(text) : 0;
    return n > 0 && n <= 64 && text[0] != '.' && strspn(text, allowed) == n;
}

static bool one_type(int32_t types)
{
    return types == MR_KERNEL_BF16 || types == MR_KERNEL_FP16 || types == MR_KERNEL_FP32;
}

/* What a kernel says of itself, but for its name; NULL if it makes sense. */
static const char *contradiction(const struct mr_kernel *k)
{
    int needs_ids = MR_GIVES_WEIGHTS | MR_GIVES_COUNTS | MR_GIVES_SORTED;
    if (k->memory != MR_MEMORY_HOST && k->memory != MR_MEMORY_DEVICE)
        return "memory is neither host nor device";
    if (k->min_rows < 1 || (k->max_rows && k->max_rows < k->min_rows))
        return "min_rows and max_rows are no range";
    if (!k->hidden_types != !k->gate_types) return "hidden states and gate go together";
    if (!k->hidden_types == !k->given_types)
        return "expected either hidden states and gate or given logits";
    if (!(k->gives & (MR_GIVES_LOGITS | MR_GIVES_IDS))) return "gives neither logits nor ids";
    if (k->gives & needs_ids && !(k->gives & MR_GIVES_IDS))
        return "gives weights, counts or sorted positions, and no ids";
    if (k->gives & MR_GIVES_LOGITS && !one_type(k->logits_type)) return "logits_type is no type";
    if (k->gives & MR_GIVES_WEIGHTS && !one_type(k->weights_type)) return "weights_type is no type";
    if (k->gives & MR_GIVES_SORTED && (k->tile < 1 || k->tile > 4096 || k->tile & (k->tile - 1)))
        return "tile is no power of two up to 4096";
    if (!k->launch) return "launch is NULL";
    return NULL;
}

static enum mr_status check(const struct mr_kernel *k, const char *origin, struct mr_error *err)
{
    if (!k) return mr_fail(err, MR_ERR_VALUE, "%s: a kernel that is NULL", origin);
    if (k->abi != MR_KERNEL_ABI)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "%s: a kernel of ABI version %u; this harness has "
                       "version %u: compile it with this harness's harness.h", origin, k->abi,
                       MR_KERNEL_ABI);
    if (!is_name(k->name, "abcdefghijklmnopqrstuvwxyz0123456789_-."))
        return mr_fail(err, MR_ERR_VALUE, "%s: a kernel's name: expected up to 64 of a-z 0-9 _ - .",
                       origin);
    if (!strcmp(k->name, "all"))
        return mr_fail(err, MR_ERR_VALUE, "%s: a kernel named 'all', which means all", origin);
    if (!is_name(k->family, "abcdefghijklmnopqrstuvwxyz0123456789_"))
        return mr_fail(err, MR_ERR_VALUE, "%s: kernel %s: family: expected up to 64 of a-z 0-9 _",
                       origin, k->name);
    const char *what = contradiction(k);
    if (what) return mr_fail(err, MR_ERR_VALUE, "%s: kernel %s: %s", origin, k->name, what);
    return MR_OK;
}

enum mr_status gpu_registry_check(struct mr_error *err)
{
    if (overflow) return mr_fail(err, MR_ERR_MEMORY, "more than %d kernels", MOST);
    for (size_t i = 0; i < count; i++) {
        TRY(check(kernels[i], "built in", err));
        if (gpu_kernel_find(kernels[i]->name) != kernels[i])
            return mr_fail(err, MR_ERR_VALUE, "built in: two kernels are named %s",
                           kernels[i]->name);
    }
    return MR_OK;
}

/* dlopen looks a name without a slash up among the system's libraries, which is not what a path
 * means. */
static void *open_library(const char *path)
{
    char here[4096];
    if (strchr(path, '/')) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int n = snprintf(here, sizeof here, "./%s", path);
    return n > 0 && (size_t)n < sizeof here ? dlopen(here, RTLD_NOW | RTLD_LOCAL) : NULL;
}

enum mr_status gpu_plugin_load(const char *path, struct mr_error *err)
{
    void *library = open_library(path);
    if (!library) {
        const char *why = dlerror();
        return mr_fail(err, MR_ERR_IO, "--plugin %s: cannot load: %s", path, why ? why : "?");
    }
    const struct mr_plugin *plugin = dlsym(library, MR_PLUGIN_SYMBOL);
    if (!plugin)
        return mr_fail(err, MR_ERR_FORMAT, "--plugin %s: exports no " MR_PLUGIN_SYMBOL, path);
    if (plugin->abi != MR_KERNEL_ABI)
        return mr_fail(err, MR_ERR_UNSUPPORTED, "--plugin %s: ABI version %u; this harness has "
                       "version %u: compile it with this harness's harness.h", path, plugin->abi,
                       MR_KERNEL_ABI);
    if (!plugin->count) return mr_fail(err, MR_ERR_VALUE, "--plugin %s: no kernel in it", path);
    for (uint32_t i = 0; i < plugin->count; i++) {
        const struct mr_kernel *k = plugin->kernels[i];
        TRY(check(k, path, err));
        if (gpu_kernel_find(k->name))
            return mr_fail(err, MR_ERR_VALUE, "--plugin %s: there is a kernel %s already", path,
                           k->name);
        if (count == MOST) return mr_fail(err, MR_ERR_MEMORY, "more than %d kernels", MOST);
        mr_kernel_announce(k);
    }
    return MR_OK;
}
