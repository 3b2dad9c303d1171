#include "tensor.h"

#include <string.h>

static const struct {
    const char *name;
    unsigned bits;
} table[MR_DTYPE_COUNT] = {
    [MR_BOOL] = {"BOOL", 8},       [MR_F4] = {"F4", 4},           [MR_F6_E2M3] = {"F6_E2M3", 6},
    [MR_F6_E3M2] = {"F6_E3M2", 6}, [MR_U8] = {"U8", 8},           [MR_I8] = {"I8", 8},
    [MR_F8_E5M2] = {"F8_E5M2", 8}, [MR_F8_E4M3] = {"F8_E4M3", 8}, [MR_F8_E8M0] = {"F8_E8M0", 8},
    [MR_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8}, [MR_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [MR_I16] = {"I16", 16},        [MR_U16] = {"U16", 16},        [MR_F16] = {"F16", 16},
    [MR_BF16] = {"BF16", 16},      [MR_I32] = {"I32", 32},        [MR_U32] = {"U32", 32},
    [MR_F32] = {"F32", 32},        [MR_C64] = {"C64", 64},        [MR_F64] = {"F64", 64},
    [MR_I64] = {"I64", 64},        [MR_U64] = {"U64", 64},
};

const char *mr_dtype_name(enum mr_dtype dtype)
{
    return (unsigned)dtype < MR_DTYPE_COUNT ? table[dtype].name : "?";
}

unsigned mr_dtype_bits(enum mr_dtype dtype)
{
    return (unsigned)dtype < MR_DTYPE_COUNT ? table[dtype].bits : 0;
}

int mr_dtype_parse(const char *name)
{
    for (int i = 0; i < MR_DTYPE_COUNT; i++)
        if (!strcmp(name, table[i].name)) return i;
    return -1;
}
