#include "isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Not C11's call_once: ThreadSanitizer does not see that one, and would report a race. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum mr_isa best;

static const char *const names[] = {"base", "v3", "v4"};

#if MR_ISA_LEVELS == 3
static enum mr_isa of_machine(void)
{
    __builtin_cpu_init();
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
    if (__builtin_cpu_supports("x86-64-v4")) return MR_ISA_V4;
    if (__builtin_cpu_supports("x86-64-v3")) return MR_ISA_V3;
#else
    /* Compilers that do not know the levels by name do not know all of their features by name
     * either (F16C, LZCNT, MOVBE); no processor has those below without the others. */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
        return MR_ISA_BASE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return MR_ISA_V3;
    return MR_ISA_V4;
#endif
    return MR_ISA_BASE;
}
#else
static enum mr_isa of_machine(void)
{
    return MR_ISA_BASE;
}
#endif

static void find(void)
{
    best = of_machine();
    const char *wish = getenv("MOEREF_ISA");
    for (int isa = 0; wish && isa < (int)best; isa++)
        if (strcmp(wish, names[isa]) == 0) best = (enum mr_isa)isa;
}

enum mr_isa mr_isa_best(void)
{
    pthread_once(&once, find);
    return best;
}

const char *mr_isa_name(enum mr_isa isa)
{
    return (unsigned)isa < sizeof names / sizeof *names ? names[isa] : "?";
}
