"""FlashInfer (flashinfer-python): routing kernels and router GEMMs."""
import flashinfer_gemm
import flashinfer_routing
import flashinfer_topk
from engine import Kernel
from flashinfer_package import find  # noqa: F401

NAME = "flashinfer"
VERSIONS = ("0.7.4",)


class Refused(Kernel):
    """Looked at, and of no use on Hopper; the reason names the file that says so."""

    def __init__(self, name, about, why, takes="logits", gives=("ids", "weights")):
        self.name, self.about, self.why, self.takes, self.gives = name, about, why, takes, gives

    def refuses(self, router, rows):
        return self.why


GEMM = {"takes": "hidden", "gives": ("logits",)}
REFUSED = (
    Refused("fused_topk_deepseek_cake", "fused_topk_deepseek(backend='cake')",
            "10.0, 10.3 and 10.7 only: fused_moe/fused_routing_dsv3.py:40"),
    Refused("kimi_k3_fused_router", "gate logits of 896 experts to experts and sorted positions",
            "sm_100a and sm_103a only: experimental/kimi_k3_fused_router/cake_jit.py"),
    Refused("alphamoe_fused_router", "softmax top-k and sorted positions in one launch",
            "sm_100a and sm_103a only: jit/fused_moe.py:539"),
    Refused("deepgemm_mega_gate", "gate GEMM and top-k in one kernel",
            "sm_100a, sm_103a and sm_107a only: experimental/deepgemm_mega_gate/cake_jit.py:68", "hidden"),
    Refused("top_k_clusters", "top_k on clusters: csrc/flashinfer_fast_topk_clusters_binding.cu",
            "10.x only: topk.py:672"),
    Refused("cake_router_gemm", "mm_M1_16_* on 10.0 and 10.3: csrc/cake_router_gemm",
            "10.x only: jit/cake_router_gemm.py:36; on 9.0 the dispatcher takes dsv3_router_gemm.cu", **GEMM),
    Refused("tinygemm2_sm100", "tinygemm_bf16 with bias on 10.x: csrc/tinygemm2_sm100.cu, tcgen05 programs",
            "10.0, 10.3 and 10.7 only: gemm/routergemm.py:894", **GEMM),
    Refused("mm_bf16_batch_invariant", "mm_bf16(batch_invariant=True): gemm/batch_invariant/api.py",
            "10.0, 10.3 and 10.7 only: gemm/batch_invariant/api.py:63", **GEMM),
)


def kernels(found):
    return [*(k() for k in flashinfer_topk.KERNELS), *flashinfer_routing.kernels(),
            *flashinfer_gemm.kernels(), *REFUSED]
