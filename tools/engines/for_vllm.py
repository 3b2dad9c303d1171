"""vLLM: top-k operators, router GEMMs, what its models do with them, and moe_align_block_size.

An installed vllm is used as it is. Without one, VLLM_SOURCE names a source tree, whose routing operators
are compiled here (vllm_tree.py) and whose routers are imported from its files (vllm_routers.py)."""
import vllm_align
import vllm_chain
import vllm_gate
import vllm_grouped
import vllm_topk
import vllm_tree

NAME = "vllm"
VERSIONS = ("0.33.0",)


def find():
    return vllm_tree.find()


def kernels(found):
    parts = (vllm_topk, vllm_grouped, vllm_gate, vllm_chain, vllm_align)
    return [kernel for part in parts for kernel in part.kernels()]
