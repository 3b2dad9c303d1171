"""SGLang from hidden states: its router GEMMs, its one fused router, and whole gates as its models run
them, GEMM chosen by the number of rows.

The gate weight is taken in the type that the model keeps it in: bf16 where the kernel reads bf16 (a weight
that is no bf16 is refused, not rounded), fp32 where it reads fp32 (bf16 widens exactly).
"""
from engine import Kernel, Unsupported
from for_sglang_common import named, normalises, of
from for_sglang_torch import SelectExperts, selector

TINY = 16  # rows up to which MoEGate takes tiny_gemm_bf16: srt/models/deepseek_common/utils.py


def as_bf16(p):
    import torch
    narrow = p.gate.to(torch.bfloat16)
    if not torch.equal(narrow.float(), p.gate.float()):
        raise Unsupported("it reads a bf16 gate weight, and this one is not bf16")
    return narrow.contiguous()


class Linear(Kernel):
    """A GEMM alone: logits. most: its rows."""
    takes = "hidden"
    gives = ("logits",)
    most = None

    def refuses(self, router, rows):
        if router.gate_bias:
            return "has no gate bias"
        if self.most is not None and rows > self.most:
            return f"at most {self.most} row{'s' if self.most > 1 else ''}"
        return self.refuses_shape(router)

    def refuses_shape(self, router):
        return None

    def prepare(self, p):
        product = self.product(p)
        product()
        return lambda: {"logits": product()}


def tiny(p, weight):
    """hidden -> fp32 logits by tiny_gemm_bf16, or None where it does not serve the shape."""
    import torch
    gemm, r = of("kernels.ops.gemm.tiny_gemm"), p.router
    if p.rows > TINY or not gemm.can_use_tiny_gemm(r.experts, r.hidden, max_m=TINY):
        return None
    return lambda: gemm.tiny_gemm_bf16(p.hidden, weight, out_dtype=torch.float32, max_m=TINY)


class TinyGemm(Linear):
    name = "tiny_gemm"
    about = "tiny_gemm_bf16, fp32 logits, DeepSeek's and Kimi's gate up to 16 rows: csrc/gemm/tiny_gemm.cuh"
    most = TINY

    def product(self, p):
        product = tiny(p, as_bf16(p))
        if product is None:
            raise Unsupported("can_use_tiny_gemm says no to this shape")
        return product


class LinearBf16Fp32(Linear):
    name = "linear_bf16_fp32"
    about = "cuBLAS, bf16 operands, fp32 logits: kernels/ops/gemm/bf16_fp32.py"

    def product(self, p):
        linear, weight = of("kernels.ops.gemm.bf16_fp32").linear_bf16_fp32, as_bf16(p)
        return lambda: linear(p.hidden, weight)


class Matvec(Linear):
    name = "router_gate_matvec"
    about = "Triton, a row and 4 experts a block, up to 8 rows: kernels/ops/gemm/router_gate_matvec.py"
    most = 8

    def product(self, p):
        matvec, weight = of("kernels.ops.gemm.router_gate_matvec").router_gate_matvec, p.gate
        return lambda: matvec(p.hidden, weight)


class Gemv(Linear):
    name = "router_gemv"
    about = "Triton, split-K 8, fp32 gate weight, up to 8 rows: kernels/ops/gemm/router_gemv.py"
    most = 8

    def product(self, p):
        gemv, weight = of("kernels.ops.gemm.router_gemv"), p.gate.float().contiguous()
        if not gemv.router_gemv_supported(p.hidden, weight):
            raise Unsupported("router_gemv_supported says no to this shape")
        return lambda: gemv.router_gemv(p.hidden, weight)


class MuseGemm(Linear):
    name = "muse_spark_router_gemm"
    about = "fp32 x fp32, split-K 32, up to 8 rows: kernels/ops/gemm/muse_spark_router_gemm.py"
    hidden_types = ("bf16", "fp32")
    most = 8

    def product(self, p):
        gemm = of("kernels.ops.gemm.muse_spark_router_gemm")
        weight = p.gate.float().t().contiguous()
        if not gemm.router_gemm_supported(p.hidden.float(), weight):
            raise Unsupported("router_gemm_supported says no to this shape")
        return lambda: gemm.router_gemm(p.hidden.float(), weight)


class HopperGemv(Linear):
    name = "hopper_bf16_gemv"
    about = ("one row, bf16 logits, any bf16 linear layer under --bf16-gemm-backend gemv: "
             "csrc/gemm/hopper_bf16_gemv.cuh")
    most = 1

    def arithmetic(self, router, rows):
        return "bf16-logits"

    def product(self, p):
        gemv, weight, r = of("kernels.ops.gemm.hopper_bf16_gemv"), as_bf16(p), p.router
        if not gemv.use_hopper_bf16_gemv(p.rows, r.experts, r.hidden):
            raise Unsupported("use_hopper_bf16_gemv says no to this shape")
        return lambda: gemv.hopper_bf16_gemv(p.hidden, weight)


class Chain(SelectExperts):
    """A gate and select_experts, as a model of that family does both."""
    takes = "hidden"
    gives = ("ids", "weights", "logits")
    hidden_types = ("bf16",)

    def refuses_shape(self, router, rows):
        return "its gate has no bias" if router.gate_bias else None

    def prepare(self, p):
        product, select = self.product(p), selector(p)
        product()

        def launch():
            logits = product()
            return {**named(select(logits)), "logits": logits}
        return launch


class DeepSeek(Chain):
    name = "chain_deepseek"
    about = ("MoEGate of DeepSeek, GLM-5, Kimi: tiny_gemm up to 16 rows, then cuBLAS, fp32 logits; then "
             "select_experts: srt/models/deepseek_v2.py")

    def product(self, p):
        weight = as_bf16(p)
        linear = of("kernels.ops.gemm.bf16_fp32").linear_bf16_fp32
        return tiny(p, weight) or (lambda: linear(p.hidden, weight))


class DeepSeekDeterministic(Chain):
    name = "chain_deepseek_deterministic"
    about = ("the same under --enable-deterministic-inference: torch.mm with fp32 output at every row count, "
             "which that mode replaces by matmul_persistent: srt/batch_invariant_ops/batch_invariant_ops.py")

    def product(self, p):
        import torch
        matmul = of("srt.batch_invariant_ops.batch_invariant_ops").matmul_persistent
        hidden, weight = p.hidden.contiguous(), as_bf16(p).t().contiguous()
        return lambda: matmul(hidden, weight, out_dtype=torch.float32)


class Glm4(Chain):
    name = "chain_glm4_moe"
    about = ("Glm4MoeGate (also MiniMax-M2's): F.linear in fp32, then select_experts: "
             "srt/models/glm4_moe.py")
    hidden_types = ("bf16", "fp32")

    def product(self, p):
        import torch
        weight = p.gate.float()
        return lambda: torch.nn.functional.linear(p.hidden.float(), weight)


class Qwen3(Chain):
    name = "chain_qwen3_moe"
    about = ("ReplicatedLinear in bf16, then select_experts on bf16 logits (Qwen3, Mixtral, Ernie 4.5): "
             "srt/models/qwen3_moe.py")

    def arithmetic(self, router, rows):
        return "bf16-logits"

    def product(self, p):
        import torch
        weight = as_bf16(p)
        return lambda: torch.nn.functional.linear(p.hidden, weight)


class Qwen3Gemv(Qwen3):
    name = "chain_qwen3_moe_gemv"
    about = "the same under --bf16-gemm-backend gemv: hopper_bf16_gemv at one row, else cuBLAS"

    def product(self, p):
        r, gemv = p.router, of("kernels.ops.gemm.hopper_bf16_gemv")
        if not gemv.use_hopper_bf16_gemv(1, r.experts, r.hidden):
            raise Unsupported("use_hopper_bf16_gemv says no to this shape")
        return HopperGemv().product(p) if p.rows == 1 else super().product(p)


class GrokRouter(Kernel):
    name = "grok_router"
    about = ("fused_moe_router_shim, GEMM and softmax in one Triton kernel: TF32 mma from 512 rows on or "
             "with more than 8 experts, else fp32 sums: kernels/ops/moe/router.py; scaled behind it")
    takes = "hidden"

    def refuses(self, router, rows):
        if router.score != "softmax" or router.bias or router.gate_bias or router.n_group > 1:
            return "a softmax router without bias or groups"
        if normalises(router):
            return "never divides by the sum of the selected scores"
        if router.experts & (router.experts - 1):
            return "its blocks are powers of two of experts"
        mma = (rows >= 512 or router.experts > 8) \
            and router.hidden % (256 if router.experts < 256 else 64) == 0
        if mma and router.top_k > 2:
            return "top_k is at most 2 with tensor cores"

    def prepare(self, p):
        shim, r, weight = of("kernels.ops.moe.router").fused_moe_router_shim, p.router, as_bf16(p)

        def launch():
            weights, ids = shim(0, p.hidden, weight, r.top_k, False)
            return {"weights": weights * r.routed_scaling_factor, "ids": ids}
        return launch


def kernels():
    return [TinyGemm(), LinearBf16Fp32(), Matvec(), Gemv(), MuseGemm(), HopperGemv(), DeepSeek(),
            DeepSeekDeterministic(), Glm4(), Qwen3(), Qwen3Gemv(), GrokRouter()]
