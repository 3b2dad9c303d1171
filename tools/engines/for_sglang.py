"""SGLang: its Triton router, its JIT CUDA gates, its Python fallbacks, its router GEMMs and its sorting
of positions. Kernels stand in for_sglang_topk.py (from logits), for_sglang_torch.py (its Python),
for_sglang_gate.py (from hidden states), for_sglang_align.py (from ids) and for_sglang_absent.py (what no
Hopper GPU runs).

All were read in version 0.5.23. It pins torch 2.14, and its kernels are compiled on first use (nvcc, ninja,
tvm_ffi) or by Triton, so they run under other versions of torch; only sglang_kernel's compiled library
does not.
"""
import importlib.metadata
import importlib.util

import for_sglang_absent
import for_sglang_align
import for_sglang_gate
import for_sglang_topk
import for_sglang_torch
from engine import Found

NAME = "sglang"
VERSIONS = ("0.5.23",)


def find():
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        return Found(None, "sglang is not installed")
    try:
        version = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return Found(None, "sglang lies on the path without its dist-info, so its version is not known")
    return Found(version, where=spec.submodule_search_locations[0])


def kernels(found):
    parts = (for_sglang_topk, for_sglang_torch, for_sglang_gate, for_sglang_align, for_sglang_absent)
    return [kernel for part in parts for kernel in part.kernels()]
