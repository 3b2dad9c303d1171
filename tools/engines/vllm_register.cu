/* Makes vLLM's routing functions torch operators when they are compiled alone, from vLLM's own sources
 * and headers (vllm_tree.py): vLLM's registration names many more, which would have to be compiled too.
 * The schemas are what the declarations in csrc/moe/moe_ops.h say. */
#include <torch/csrc/stable/library.h>

#include "moe/moe_ops.h"

STABLE_TORCH_LIBRARY_FRAGMENT(_moe_C, m)
{
    m.def("topk_softmax(Tensor! weights, Tensor! ids, Tensor! rows, Tensor logits, "
          "bool renormalize, Tensor? bias, Tensor? is_padding) -> ()");
    m.def("topk_sigmoid(Tensor! weights, Tensor! ids, Tensor! rows, Tensor logits, "
          "bool renormalize, Tensor? bias, float scale, Tensor? is_padding) -> ()");
    m.def("topk_softplus_sqrt(Tensor! weights, Tensor! ids, Tensor! rows, Tensor logits, "
          "bool renormalize, float scale, Tensor? bias, Tensor? input_ids, Tensor? table, "
          "Tensor? is_padding, Tensor? image_bias=None, int image_id=0) -> ()");
    m.def("grouped_topk(Tensor logits, int groups, int chosen_groups, int topk, bool renormalize, "
          "float scale, Tensor bias, int score) -> (Tensor, Tensor)");
    m.def("moe_align_block_size(Tensor ids, int experts, int block, Tensor! sorted, "
          "Tensor! block_experts, Tensor! total, Tensor? expert_map, Tensor(a!)? scatter=None) "
          "-> ()");
}

STABLE_TORCH_LIBRARY_IMPL(_moe_C, CUDA, m)
{
    m.impl("topk_softmax", TORCH_BOX(&topk_softmax));
    m.impl("topk_sigmoid", TORCH_BOX(&topk_sigmoid));
    m.impl("topk_softplus_sqrt", TORCH_BOX(&topk_softplus_sqrt));
    m.impl("grouped_topk", TORCH_BOX(&grouped_topk));
    m.impl("moe_align_block_size", TORCH_BOX(&moe_align_block_size));
}
