"""sglang_kernel 0.4.4, the compiled library of SGLang 0.5.14 and 0.5.15: what SGLang ran before its Triton
router took over (0.5.15). Only the library for Hopper is loaded, sm90/common_ops.abi3.so, by torch alone. It is
compiled with -use_fast_math, the one for Blackwell is not: each sigmoid is MUFU.EX2 and MUFU.RCP in its SASS.
Later ones, to 0.4.10, want a later torch than 2.11."""
import ctypes
import importlib.metadata
import importlib.util
from pathlib import Path

from engine import Found, Kernel, Unsupported
from for_sglang_align import Align
from for_sglang_common import Sglang, bias_of, normalises, weights_and_ids

NAME = "sgl_kernel"
VERSIONS = ("0.4.4",)
FAST = "score:sigmoid.fast"


def folder():
    spec = importlib.util.find_spec("sgl_kernel")
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def find():
    where = folder()
    if where is None:
        return Found(None, "sglang_kernel is not installed")
    if not (where / "sm90/common_ops.abi3.so").exists():
        return Found(None, f"{where} has no sm90/common_ops.abi3.so")
    for name in ("sglang-kernel", "sgl-kernel"):
        try:
            return Found(importlib.metadata.version(name), where=str(where))
        except importlib.metadata.PackageNotFoundError:
            pass
    return Found(None, f"{where} is there without its dist-info, so its version is not known")


def beside_torch(torch, name):
    """CUDA's libraries may lie in wheels, where only torch looks for them, when it needs them."""
    for at in Path(torch.__file__).parent.parent.glob(f"nvidia/*/lib/{name}"):
        ctypes.CDLL(str(at), mode=ctypes.RTLD_GLOBAL)
        return


def ops():
    import torch
    if not hasattr(torch.ops.sgl_kernel, "topk_softmax"):
        try:
            for name in ("libnvrtc.so.13", "libcublasLt.so.13", "libcublas.so.13"):
                beside_torch(torch, name)
            torch.ops.load_library(str(folder() / "sm90/common_ops.abi3.so"))
        except OSError as e:
            raise Unsupported(f"common_ops.abi3.so does not load: {e.__cause__ or e}".splitlines()[0])
    return torch.ops.sgl_kernel


class Gate(Sglang):
    takes = "logits"
    norm = True
    bias = True
    contiguous = True
    profile = "sglang"

    def arithmetic(self, router, rows):
        return FAST

    def prepare(self, p):
        self.check(p)
        call = self.call(p, ops())

        def launch():
            weights, ids = call()
            return {"weights": weights, "ids": ids}
        return launch


class FusedGate(Gate):
    name = "moe_fused_gate"
    about = "DeepSeek-V3's groups, at most 32 experts each, in fp32; never without dividing by the sum"
    groups = "top2-sum"

    def refuses_shape(self, router, rows):
        n = router.experts
        if n & (n - 1):
            return "experts must be a power of two"
        if n // router.n_group > 32:
            return "at most 32 experts a group"

    def call(self, p, sgl):
        r = p.router
        return lambda: sgl.moe_fused_gate(p.logits, p.bias, r.n_group, r.topk_group, r.top_k, 0,
                                          r.routed_scaling_factor, True)


class KimiGate(Gate):
    name = "kimi_k2_moe_fused_gate"
    about = ("Kimi K2's default up to SGLang 0.5.14: one block a row up to 512 rows, then one warp a row; "
             "sigmoid, without groups")
    norm = None
    bias = None
    most_k = 8

    def refuses_shape(self, router, rows):
        if router.experts not in (256, 384):
            return "serves 256 and 384 experts"

    def call(self, p, sgl):
        r, bias = p.router, bias_of(p)
        return lambda: sgl.kimi_k2_moe_fused_gate(p.logits, bias, r.top_k, normalises(r),
                                                  r.routed_scaling_factor, True)


class Topk(Sglang):
    """Outputs are the caller's; scaled behind the kernel."""
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    profile = "sglang"

    def prepare(self, p):
        sgl, r = ops(), p.router
        weights, ids = weights_and_ids(p)
        call = self.call(p, sgl, weights, ids)

        def launch():
            call()
            if r.routed_scaling_factor != 1:
                weights.mul_(r.routed_scaling_factor)
            return {"weights": weights, "ids": ids}
        return launch


class TopkSoftmax(Topk):
    name = "topk_softmax"
    about = "in-warp for powers of two up to 256 experts, else two kernels; scaled behind it"
    scores = ("softmax",)
    by_logit = True
    bias = False

    def call(self, p, sgl, weights, ids):
        return lambda: sgl.topk_softmax(weights, ids, p.logits, normalises(p.router), 0.0, None)


class TopkSigmoid(Topk):
    name = "topk_sigmoid"
    about = ("in-warp for powers of two up to 256 experts, else two kernels; a weight is its key less the bias; "
             "scaled behind it")

    def arithmetic(self, router, rows):
        return FAST

    def call(self, p, sgl, weights, ids):
        return lambda: sgl.topk_sigmoid(weights, ids, p.logits, normalises(p.router), p.bias)


class RouterGemm(Kernel):
    name = "dsv3_router_gemm"
    about = "DeepSeek's and Kimi's gate up to 16 rows in SGLang 0.5.14, hidden size 7168, fp32 logits"
    takes = "hidden"
    gives = ("logits",)

    def refuses(self, router, rows):
        if router.gate_bias:
            return "has no gate bias"
        if router.hidden != 7168 or router.experts not in (256, 384):
            return "serves 256 or 384 experts and hidden size 7168"
        return "at most 16 rows" if rows > 16 else None

    def prepare(self, p):
        import torch
        if p.gate.dtype != torch.bfloat16:
            raise Unsupported("reads a bf16 gate weight")
        sgl, out = ops(), p.empty((p.rows, p.router.experts), torch.float32)

        def launch():
            sgl.dsv3_router_gemm(out, p.hidden, p.gate)
            return {"logits": out}
        return launch


class AlignBlockSize(Align):
    name = "moe_align_block_size"
    about = "one block up to 64 experts and 1024 positions, else two kernels; experts moved by one"

    def refuses(self, router, rows):
        return "at most 1023 experts" if router.experts > 1023 else None

    def function(self, p):
        import torch
        sgl, n, buckets = ops(), p.ids.numel(), p.router.experts + 1
        most = n * self.tile if n < buckets else n + buckets * (self.tile - 1)
        most = -(-most // 4) * 4  # it fills in fours

        def space(count):
            return p.empty((count,), torch.int32)
        places, experts, total = space(most), space(-(-most // self.tile)), space(1)
        sums = torch.empty(buckets + 1, dtype=torch.int32, device=p.device)

        def align():
            sgl.moe_align_block_size(p.ids, buckets, self.tile, places, experts, total, sums, True)
            return places, experts, total
        return align


def kernels(found):
    return [FusedGate(), KimiGate(), TopkSoftmax(), TopkSigmoid(), RouterGemm(), AlignBlockSize()]
