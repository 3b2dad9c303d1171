"""What SGLang 0.5.23 has for routing and a Hopper GPU, or this engine's interface, does not run: kept so
that a table says so, each with its reason."""
from engine import Kernel


class Absent(Kernel):
    def __init__(self, name, about, reason, takes="logits"):
        self.name, self.about, self.reason, self.takes = name, about, reason, takes

    def refuses(self, router, rows):
        return self.reason


SM100 = "Blackwell only: "
HIP = "ROCm only: "
LIBRARY = ("sglang_kernel 0.4.10's sm90/common_ops.abi3.so is built for torch 2.14: against 2.11 "
           "torch::Library::_def with std::vector<torch::headeronly::Tag> and "
           "c10::cuda::CUDAErrorLogCapture are undefined")
SINKS = "shared experts take part in its normaliser: a router here has none, and its shape is fixed"


def kernels():
    return [
        Absent("mega_gate", "GEMM and top-k by DeepGEMM: kernels/ops/moe/mega_gate.py",
               SM100 + "registered for sm_100 to sm_109, kernels/ops/moe/__init__.py:33", "hidden"),
        Absent("moe_front", "merged gate and down projection, then radix select: kernels/ops/moe/"
               "moe_front.py", SM100 + "route_radix.cuh:570 instantiates 32-byte vectors, which "
               "sgl_kernel/vec.cuh:79 refuses below sm_100, so it does not compile", "hidden"),
        Absent("muse_spark_router_gemv", "CuTe DSL, fp32: kernels/ops/gemm/muse_spark_router_gemv_"
               "cutedsl.py", "needs nvidia-cutlass-dsl's compiler", "hidden"),
        Absent("route_radix4", "4-bit radix select: kernels/ops/moe/moe_route_radix4.py",
               HIP + "wave64 and GFX9 DPP"),
        Absent("rocm_router_gate", "split-K sum and gate: kernels/ops/moe/rocm_router_gate.py",
               HIP + "dispatched by aiter"),
        Absent("hash_topk_triton", "kernels/ops/moe/triton_hash_topk.py", HIP + "stands in for hash_topk"),
        Absent("sm120_router_top22", "kernels/ops/moe/moe_fused_gate.py:26",
               "sm_120 only: moe_fused_gate.py:484 asks for capability 12.0"),
        Absent("inkling_gate", "GEMV, top-6 of 256 and 2 sinks: kernels/jit/csrc/moe/"
               "inkling_gate_topk_renorm.cuh", SINKS),
        Absent("aot_topk_softmax", "sgl_kernel/moe.py", LIBRARY),
        Absent("aot_topk_sigmoid", "sgl_kernel/moe.py", LIBRARY),
        Absent("aot_moe_align_block_size", "sgl_kernel/moe.py: the layers' default above 64 positions",
               LIBRARY, "ids"),
    ]
