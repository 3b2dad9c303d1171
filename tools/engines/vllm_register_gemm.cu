/* csrc/fp32_router_gemm_entry.cu implements this operator; vLLM's torch_bindings.cpp, which defines it,
 * defines all of vLLM's others, too. */
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY_FRAGMENT(_C, m)
{
    m.def("fp32_router_gemm(Tensor! logits, Tensor hidden, Tensor gate) -> ()");
}
