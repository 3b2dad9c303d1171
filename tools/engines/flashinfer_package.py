"""Where FlashInfer is, how its modules are imported, and how two of its libraries are built for Hopper.

FlashInfer's __init__ imports all of it: attention, communication, DSLs. Its routing kernels need none of
that, so the package is entered without its __init__: a module of the same name and path stands for it.
"""
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import types
from functools import cache
from pathlib import Path

from engine import Found, Unsupported

BARE = ("flashinfer", "flashinfer.fused_moe", "flashinfer.gemm")


def find():
    spec = importlib.util.find_spec("flashinfer")
    if spec is None or not spec.submodule_search_locations:
        return Found(None, "no module flashinfer (pip install flashinfer-python)")
    where = list(spec.submodule_search_locations)[0]
    if importlib.util.find_spec("tvm_ffi") is None:
        return Found(None, f"flashinfer in {where}, but no module tvm_ffi (apache-tvm-ffi)", where)
    try:
        return Found(importlib.metadata.version("flashinfer-python"), "", where)
    except importlib.metadata.PackageNotFoundError:
        meta = Path(where, "_build_meta.py")
        version = re.search(r'__version__ *= *"(.+?)"', meta.read_text()) if meta.is_file() else None
        return (Found(version[1], "", where) if version
                else Found(None, f"flashinfer in {where} does not say its version", where))


@cache
def module(name):
    """flashinfer.NAME; ImportError names what is missing."""
    if "flashinfer" not in sys.modules:
        found = find()
        for package in BARE:
            bare = types.ModuleType(package)
            bare.__path__ = [str(Path(found.where, *package.split(".")[1:]))]
            bare.__version__ = found.version
            sys.modules[package] = bare
    return importlib.import_module(f"flashinfer.{name}")


def dense_logits(problem):
    """Its logits; every routing kernel's own check refuses rows with gaps between them."""
    if not problem.logits.is_contiguous():
        raise Unsupported("takes rows of logits without gaps")
    return problem.logits


# The routing sources include headers that FlashInfer downloads with its GEMM kernels. Of them the routing
# code reads the names of a few enumerators, and passes them on to itself.
EXPORT = "flashinfer/trtllm/batched_gemm/trtllmGen_bmm_export"
ENUMS = {
    "trtllm/gen/DtypeDecl.h": "trtllm { namespace gen { enum class Dtype : unsigned { Bfloat16, Bool, "
    "E2m1, E4m3, E5m2, Fp16, Fp32, Int8, Int32, MxE2m1, MxE4m3, MxInt4, UE8m0, Void }; }",
    "trtllm/gen/SfLayoutDecl.h": "trtllm { namespace gen { enum class SfLayout { Linear }; }",
    "Enums.h": "gemm { enum class MatrixLayout { MajorK }; enum class BiasType { None }; "
    "enum class FusedBiasShuffleMode { None };",
    "GemmGatedActOptions.h": "gemmGatedAct { "
    "enum class ActType { SwiGlu = 0, GeGlu = 1, SiTuGlu = 2, None = 3 };",
    "GemmOptions.h": "gemm {",
}


def enum_headers(folder):
    for name, text in ENUMS.items():
        path = Path(folder, EXPORT, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"#pragma once\nnamespace batchedGemm {{ namespace {text} }} }}\n"
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
    return folder


ROUTING = "fused_moe/trtllm_backend/trtllm_fused_moe_routing_"
CUSTOM = ("custom_block", "custom_cluster", "custom_cluster_large", "custom_entry", "common")
DEFINES = ("-DTLLM_GEN_EXPORT_INTERFACE", "-DENABLE_BF16", "-DENABLE_FP8", "-DENABLE_FP4")


def library(name, sources, defines=(), more_includes=()):
    core, env = module("jit.core"), module("jit.env")
    csrc = env.FLASHINFER_CSRC_DIR
    headers = enum_headers(env.FLASHINFER_GEN_SRC_DIR / "moeref_enums")
    internal = csrc / "nv_internal"
    return core.gen_jit_spec(
        name, [csrc / s for s in sources],
        extra_cuda_cflags=[*DEFINES, *defines, *core.sm90a_nvcc_flags],
        extra_include_paths=[headers, csrc, internal, internal / "include",
                             *(internal / i for i in more_includes)])


def routing_spec():
    """What jit/fused_moe.py's gen_trtllm_gen_routing_module builds for 10.x and 12.x, for sm_90a."""
    return library("moeref_trtllm_gen_routing_sm90a",
                   ["trtllm_fused_moe_routing_binding.cu",
                    *(f"{ROUTING}{s}.cu" for s in ("runner", "deepseek", "llama4", *CUSTOM))],
                   ["-DTLLM_ENABLE_CUDA"])


def moe_utils_spec():
    """What jit/moe_utils.py's gen_moe_utils_module builds, for 9.0a, too, but for those headers."""
    common = "nv_internal/cpp/common/"
    kernels = "tensorrt_llm/kernels/cutlass_kernels"
    return library("moeref_moe_utils_sm90a",
                   ["moe_utils_binding.cu",
                    "nv_internal/tensorrt_llm/kernels/cuteDslKernels/moeUtils.cu",
                    *(f"{common}{s}" for s in ("envUtils.cpp", "logger.cpp", "stringUtils.cpp",
                                               "tllmException.cpp", "memoryUtils.cu")),
                    *(f"{ROUTING}{s}.cu" for s in ("deepseek", *CUSTOM))],
                   more_includes=("tensorrt_llm/cutlass_extensions/include", f"{kernels}/include",
                                  kernels))


@cache
def built(spec):
    """The library of routing_spec or moe_utils_spec, compiled on first use."""
    import torch
    if torch.cuda.get_device_capability() != (9, 0):
        raise Unsupported("the adapter builds this library for sm_90a alone")
    return spec().build_and_load()
