"""Where vLLM is, and its operators: from an installed vllm as it is, else compiled from the source tree
in $VLLM_SOURCE (an unpacked sdist, or a git checkout)."""
import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import subprocess

import nvcc_build
from engine import Found, Unsupported

HERE = pathlib.Path(__file__).parent

# As vLLM's CMakeLists.txt and cmake/utils.cmake have them for CUDA 13: torch's flags without its four
# -D__CUDA_NO_..., the build type that setup.py chooses (RelWithDebInfo, here without -g), C++20, the
# stable ABI of torch 2.11. No fast math for these files. The architecture is the H200's.
FLAGS = ["-O2", "-DNDEBUG", "-std=c++20", "--expt-relaxed-constexpr", "-DENABLE_FP8", "-DUSE_CUDA",
         "-DTORCH_TARGET_VERSION=0x020B000000000000ULL",
         "-gencode", "arch=compute_90a,code=sm_90a"]
COMMON = ["core/cuda_compat.h", "core/registration.h", "torch_utils.h"]
LIBRARIES = {
    "_moe_C": dict(
        name="vllm-moe", register="vllm_register.cu",
        sources=["moe/topk_softmax_kernels.cu", "moe/topk_softplus_sqrt_kernels.cu",
                 "moe/grouped_topk_kernels.cu", "moe/moe_align_sum_kernels.cu"],
        headers=[*COMMON, "core/utils.hpp", "cub_helpers.h", "dispatch_utils.h", "moe/moe_ops.h",
                 "moe/moeTopKFuncs.cuh", "quantization/vectorization.cuh"]),
    "_C": dict(
        name="vllm-router-gemm", register="vllm_register_gemm.cu",
        sources=["fp32_router_gemm_entry.cu", "fp32_router_gemm.cu"], headers=COMMON),
}


def installed():
    """Folder of an installed vllm with its compiled extension, or None. Nothing is imported."""
    try:
        spec = importlib.util.find_spec("vllm")
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if any(pathlib.Path(folder).glob("_moe_C*.so")):
            return pathlib.Path(folder)
    return None


def source():
    """The source tree, or None."""
    folder = os.environ.get("VLLM_SOURCE")
    return pathlib.Path(folder) if folder else None


def _version(tree):
    info = tree / "PKG-INFO"
    if info.is_file():
        found = re.search(r"^Version: (\S+)", info.read_text(errors="replace"), re.M)
        if found:
            return found.group(1)
    try:
        tag = subprocess.run(["git", "-C", str(tree), "describe", "--tags"], capture_output=True,
                             text=True).stdout.strip()
    except OSError:
        tag = ""
    return tag.removeprefix("v") or None


def find():
    folder = installed()
    if folder:
        return Found(importlib.metadata.version("vllm"), where=str(folder))
    tree = source()
    if not tree:
        return Found(None, "no vllm with compiled kernels is installed, and VLLM_SOURCE names no "
                           "source tree")
    if not (tree / "csrc/moe/topk_softmax_kernels.cu").is_file():
        return Found(None, f"VLLM_SOURCE: {tree} has no csrc/moe/topk_softmax_kernels.cu")
    version = _version(tree)
    if not version:
        return Found(None, f"VLLM_SOURCE: {tree} has no PKG-INFO and no git tag that tells its version")
    return Found(version, where=str(tree))


def python_folder():
    """The folder that is the package vllm."""
    folder = installed()
    return folder if folder else source() / "vllm"


@functools.lru_cache(None)
def operators(namespace):
    """torch.ops.NAMESPACE, loaded."""
    import torch
    folder = installed()
    if folder:
        pattern = {"_moe_C": "_moe_C*.so", "_C": "_C_stable*.so"}[namespace]
        found = sorted(folder.glob(pattern)) or sorted(folder.glob(f"{namespace}.*.so"))
        if not found:
            raise Unsupported(f"no {pattern} in {folder}")
        torch.ops.load_library(str(found[0]))
    else:
        what, tree = LIBRARIES[namespace], source() / "csrc"
        sources = [HERE / what["register"], *(tree / name for name in what["sources"])]
        headers = [tree / name for name in what["headers"]]
        missing = [path for path in [*sources, *headers] if not path.is_file()]
        if missing:
            raise Unsupported(f"{missing[0]} is missing: another layout than vLLM 0.33.0's")
        path = nvcc_build.build(what["name"], sources, headers, FLAGS, [tree])
        try:
            torch.ops.load_library(str(path))
        except OSError as error:
            raise Unsupported(f"{path} does not load: {error}") from None
    return getattr(torch.ops, namespace)
