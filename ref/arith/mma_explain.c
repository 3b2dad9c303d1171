/* Why there is no such instruction. */
#include <stdio.h>
#include <string.h>

#include "mma.h"

enum { MOST_WORDS = 6 };

struct word {
    const char *text;
    int length;
};

static bool is(struct word w, const char *text)
{
    return (size_t)w.length == strlen(text) && !memcmp(w.text, text, (size_t)w.length);
}

static int split(const char *name, size_t length, struct word *words)
{
    int n = 0;
    for (size_t i = 0; i <= length && n < MOST_WORDS; n++) {
        size_t end = i;
        while (end < length && name[end] != '-') end++;
        words[n] = (struct word){name + i, (int)(end - i)};
        i = end + 1;
    }
    return n;
}

static bool is_small(int type)
{
    return type >= MR_MMA_E4M3 && type <= MR_MMA_E2M1;
}

/* What the architecture's tensor cores lack of an operand type; NULL: nothing. */
static const char *lacks(struct word arch, int type)
{
    bool fp8 = type == MR_MMA_E4M3 || type == MR_MMA_E5M2;
    bool wide = type == MR_MMA_BF16 || type == MR_MMA_TF32;
    bool volta = is(arch, "volta"), turing = is(arch, "turing"), ampere = is(arch, "ampere");
    if ((volta || turing) && wide)
        return volta ? "Volta has no bf16 and no tf32 tensor cores (sm_80 and later have)"
                     : "Turing has no bf16 and no tf32 tensor cores (sm_80 and later have)";
    if (fp8 && volta) return "Volta has no FP8 tensor cores (sm_89 and later have)";
    if (fp8 && turing) return "Turing has no FP8 tensor cores (sm_89 and later have)";
    if (fp8 && ampere) return "Ampere has no FP8 tensor cores (sm_89 and later have)";
    if (is_small(type) && !fp8 && !is(arch, "blackwell"))
        return "FP6 and FP4 tensor cores came with Blackwell (sm_100, sm_120)";
    return NULL;
}

static void say(char *text, size_t size, const char *reason)
{
    snprintf(text, size, "%s", reason);
}

/* Operand types are words[from] and, if it is a type of at most 8 bits or no accumulator,
 * words[from + 1]; what follows is the accumulator. */
static void explain_types(struct word arch, struct word unit, const struct word *w, int n,
                          char *text, size_t size)
{
    int a = mr_mma_type_parse(w[0].text, (size_t)w[0].length);
    if (a < MR_MMA_BF16 || a > MR_MMA_E2M1) {
        snprintf(text, size,
                 "unknown operand type '%.*s' (known: bf16 fp16 tf32 e4m3 e5m2 e3m2 "
                 "e2m3 e2m1)",
                 w[0].length, w[0].text);
        return;
    }
    if (lacks(arch, a)) {
        say(text, size, lacks(arch, a));
        return;
    }
    int b = n > 1 ? mr_mma_type_parse(w[1].text, (size_t)w[1].length) : a;
    if (n > 1 && (b < MR_MMA_BF16 || b > MR_MMA_E2M1)) {
        snprintf(text, size,
                 "unknown type '%.*s' (known: bf16 fp16 tf32 e4m3 e5m2 e3m2 e2m3 "
                 "e2m1)",
                 w[1].length, w[1].text);
        return;
    }
    bool accumulator = n > 1 && b == MR_MMA_FP16;
    if (n > 1 && !accumulator && a == b)
        snprintf(text, size, "an operand type that both operands have is written once");
    else if (n > 1 && !accumulator && !(is_small(a) && is_small(b)))
        say(text, size, "only types of 8, 6 and 4 bits can differ between the operands");
    else if (n > 1 && !accumulator && lacks(arch, b))
        say(text, size, lacks(arch, b));
    else if (n > 1 && (a == MR_MMA_BF16 || a == MR_MMA_TF32))
        say(text, size, "bf16 and tf32 operands accumulate in fp32 only");
    else if (n > 2 && !(n == 3 && is(w[2], "fp16")))
        snprintf(text, size, "'%.*s' is no accumulator (fp16, or nothing for fp32)",
                 w[n - 1].length, w[n - 1].text);
    else if (is(unit, "mx") && (accumulator || n > 2))
        say(text, size, "block-scaled instructions accumulate in fp32 only");
    else if (is(unit, "mx"))
        say(text, size, "mx operands are e4m3 e5m2 e3m2 e2m3 e2m1");
    else if (is(unit, "mma") && is_small(a))
        say(text, size,
            "mma.sync of sm_90 and sm_100 has no types of 6 and 4 bits (leave 'mma' out "
            "for tcgen05; 'rtx' is mma.sync of sm_120)");
    else if (unit.length)
        snprintf(text, size, "no row of its own: '%.*s' is understood without '%.*s'", w[0].length,
                 w[0].text, unit.length, unit.text);
    else
        say(text, size, "no tensor core has this combination");
}

void mr_mma_explain(const char *name, size_t length, char *text, size_t size)
{
    static const char *const arches[] = {"volta", "turing", "ampere", "ada", "hopper", "blackwell"};
    struct word w[MOST_WORDS];
    int n = split(name, length, w), known = 0;
    for (size_t i = 0; i < sizeof arches / sizeof *arches; i++) known |= is(w[0], arches[i]);
    if (!known) {
        snprintf(text, size,
                 "unknown architecture '%.*s' (known: volta turing ampere ada hopper "
                 "blackwell)",
                 w[0].length, w[0].text);
        return;
    }
    struct word unit = {"", 0};
    int at = 1;
    if (n > 1 && (is(w[1], "mma") || is(w[1], "rtx") || is(w[1], "mx"))) unit = w[at++];
    if ((is(unit, "rtx") || is(unit, "mx")) && !is(w[0], "blackwell"))
        snprintf(text, size, "'%.*s' is a unit of Blackwell", unit.length, unit.text);
    else if (is(unit, "mma") && !is(w[0], "blackwell") && !is(w[0], "hopper"))
        say(text, size,
            "'mma' is for Hopper and Blackwell, where mma.sync differs from wgmma and "
            "tcgen05; before, all is mma.sync: leave it out");
    else if (n == at)
        say(text, size, "an operand type must follow (bf16 fp16 tf32 e4m3 e5m2 e3m2 e2m3 e2m1)");
    else if (is(w[at], "mxf4") || is(w[at], "nvf4"))
        say(text, size,
            is(w[0], "blackwell")
                ? "mxf4 and nvf4 stand alone: blackwell-mxf4, blackwell-nvf4"
                : "FP6 and FP4 tensor cores came with Blackwell (sm_100, sm_120)");
    else
        explain_types(w[0], unit, w + at, n - at, text, size);
}
