/* Element types and views of stored tensors. A view owns nothing and promises no alignment:
 * safetensors may begin a tensor at any byte, so elements are read with memcpy. */
#ifndef MOEREF_TENSOR_H
#define MOEREF_TENSOR_H

#include <stddef.h>
#include <stdint.h>

/* The dtypes of the safetensors format (huggingface/safetensors, tensor.rs, enum Dtype). */
enum mr_dtype {
    MR_BOOL, MR_F4, MR_F6_E2M3, MR_F6_E3M2, MR_U8, MR_I8, MR_F8_E5M2, MR_F8_E4M3, MR_F8_E8M0,
    MR_F8_E4M3FNUZ, MR_F8_E5M2FNUZ,
    MR_I16, MR_U16, MR_F16, MR_BF16, MR_I32, MR_U32, MR_F32, MR_C64, MR_F64, MR_I64, MR_U64,
    MR_DTYPE_COUNT
};

const char *mr_dtype_name(enum mr_dtype dtype);  /* "BF16"; "?" if out of range */
unsigned mr_dtype_bits(enum mr_dtype dtype);     /* bits an element: 4 for F4, 6, 8 ... 64 */
int mr_dtype_parse(const char *name);            /* the dtype, or -1 for an unknown name */

#define MR_MAX_DIMS 8

struct mr_tensor {
    enum mr_dtype dtype;
    int ndim;
    uint64_t shape[MR_MAX_DIMS];
    const void *data; /* little endian, row major, unaligned */
    uint64_t bytes;
};

/* Row-major matrix of BF16, F16 or F32 elements (F64 where a function says so). */
struct mr_matrix {
    const void *data;
    enum mr_dtype dtype;
    size_t rows, cols;
};

#endif
