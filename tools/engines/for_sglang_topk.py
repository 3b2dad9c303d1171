"""SGLang's top-k kernels from logits: Triton, and CUDA that it compiles on first use.

routed_scaling_factor is folded in by apply_routed_scaling_factor_on_output where the kernel has it (off by
default: most of SGLang's MoE layers multiply their output instead), and by a multiplication behind the
kernel where `about` says so.
"""
from for_sglang_common import Sglang, bias_of, named, normalises, of, weights_and_ids

RADIX = (896, 16)  # experts and top_k of route_radix, to which moe_fused_gate hands what it covers


def goes_to_radix(router):
    return ((router.experts, router.top_k) == RADIX and router.score == "sigmoid"
            and router.n_group == 1)


class FusedGate(Sglang):
    name = "fused_gate"
    about = "moe_fused_gate, the Triton router of most models: kernels/ops/moe/moe_fused_gate.py"
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    scores = ("sigmoid", "sqrtsoftplus", "softmax")
    by_logit = True
    groups = "top2-sum"
    profile = "sglang-triton"

    def refuses_shape(self, router, rows):
        if goes_to_radix(router):
            return "moe_fused_gate hands 896 experts with top_k 16 to route_radix: see that kernel"
        return self.refuses_bias(router)

    @staticmethod
    def refuses_bias(router):
        if router.score == "softmax" and router.bias:
            return "adds the bias to logits before the softmax, and leaves it in the weights"
        if router.n_group > 1 and router.experts % router.n_group:
            return "groups must be of one size"

    def options(self, p):
        return {}

    def prepare(self, p):
        gate, r, options = of("kernels.ops.moe.moe_fused_gate"), p.router, self.options(p)
        bias = None if r.score == "softmax" else bias_of(p)

        def launch():
            return named(gate.moe_fused_gate(
                p.logits, bias, r.top_k, scoring_func=r.score, renormalize=normalises(r),
                routed_scaling_factor=r.routed_scaling_factor,
                apply_routed_scaling_factor_on_output=True, num_expert_group=r.n_group,
                topk_group=r.topk_group, **options))
        return launch


class FusedGatePadded(FusedGate):
    name = "fused_gate_padded"
    about = "the same with num_token_non_padded, the number of rows: always Triton, also for 896 experts"

    def refuses_shape(self, router, rows):
        return self.refuses_bias(router)

    def options(self, p):
        import torch
        return {"num_token_non_padded": torch.full((1,), p.rows, dtype=torch.int32, device=p.device)}


class FusedGateLog1p(FusedGate):
    name = "fused_gate_log1p"
    about = "the same with sqrtsoftplus_log1p, DeepSeek-V4.1's form: log1p(exp(x)), from 20 on x"
    scores = ("sqrtsoftplus",)
    by_logit = False

    def options(self, p):
        return {"sqrtsoftplus_log1p": True}


class FusedGatePacked(FusedGate):
    name = "fused_gate_packed"
    about = "its packed_out, for FlashInfer's routed MoE: id << 16 | bf16 weight, unpacked here"

    def arithmetic(self, router, rows):
        return "bf16-weights"

    def refuses_shape(self, router, rows):
        return self.refuses_bias(router)

    def prepare(self, p):
        import torch
        packed = self.packed = p.empty((p.rows, p.router.top_k), torch.int32)
        inner = super().prepare(p)

        def launch():
            inner()
            return {"packed": packed}
        return launch

    def options(self, p):
        return {"packed_out": self.packed}

    def repack(self, outputs):
        return unpacked(outputs["packed"])


def unpacked(packed):
    import torch
    low = (packed & 0xFFFF).to(torch.int32)
    low = torch.where(low >= 0x8000, low - 0x10000, low).to(torch.int16)
    return {"ids": packed >> 16, "weights": low.view(torch.bfloat16)}


class RouteRadix(Sglang):
    name = "route_radix"
    about = "radix select for Kimi K3, experts in order of id: kernels/jit/csrc/moe/route_radix.cuh"
    takes = "logits"
    logits_types = ("fp32", "bf16")
    contiguous = True
    in_order = False

    def refuses_shape(self, router, rows):
        if (router.experts, router.top_k) != RADIX:
            return "serves 896 experts with top_k 16 alone"

    def prepare(self, p):
        self.check(p)
        radix, r, bias = of("kernels.ops.moe.moe_route_radix"), p.router, bias_of(p)

        def launch():
            return named(radix.route_radix(p.logits, bias, r.top_k, normalises(r),
                                           r.routed_scaling_factor, True, sorted=self.in_order))
        return launch


class RouteRadixSorted(RouteRadix):
    name = "route_radix_sorted"
    about = "the same with sorted=True: by key, then by id"
    in_order = True
    profile = "sglang-triton"


class KimiGate(Sglang):
    name = "kimi_k2_gate"
    about = ("one block a row up to 512 rows, then one warp a row (opt-in by SGLANG_OPT_USE_JIT_KERNEL_"
             "KIMI_GATE): kernels/jit/csrc/lora/trtllm_lora_temp/kimi_k2_moe_fused_gate.cuh")
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    most_k = 8
    contiguous = True
    profile = "sglang"

    def refuses_shape(self, router, rows):
        if router.experts not in (256, 384):
            return "serves 256 and 384 experts"

    def arithmetic(self, router, rows):
        return "score:sigmoid.expf"

    def prepare(self, p):
        self.check(p)
        gate, r = of("kernels.ops.lora.moe.trtllm_lora_temp.kimi_k2_moe_fused_gate"), p.router
        bias = bias_of(p)

        def launch():
            return named(gate.kimi_k2_moe_fused_gate(
                p.logits, bias, r.top_k, normalises(r), r.routed_scaling_factor, True))
        return launch


class TopkSigmoid(Sglang):
    name = "topk_sigmoid"
    about = ("--use_fast_math; in-warp for powers of two up to 256 experts, else two kernels: "
             "kernels/jit/csrc/moe/moe_topk_sigmoid.cuh. It reads rows as if contiguous")
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    profile = "sglang"

    def arithmetic(self, router, rows):
        return "score:sigmoid.fast"

    def prepare(self, p):
        topk, r = of("kernels.ops.moe.moe_topk_sigmoid"), p.router
        weights, ids = weights_and_ids(p)

        def launch():
            topk.topk_sigmoid(weights, ids, p.logits, normalises(r), p.bias, r.routed_scaling_factor)
            return {"weights": weights, "ids": ids}
        return launch


class TopkSoftmax(Sglang):
    name = "topk_softmax"
    about = ("--use_fast_math; in-warp for powers of two up to 512 experts, else two kernels: "
             "kernels/jit/csrc/moe/moe_topk_softmax.cuh; scaled behind it")
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    scores = ("softmax",)
    by_logit = True
    bias = False
    contiguous = True
    profile = "sglang"

    def prepare(self, p):
        self.check(p)
        topk, r = of("kernels.ops.moe.moe_topk_softmax"), p.router
        weights, ids = weights_and_ids(p)

        def launch():
            topk.topk_softmax(weights, ids, p.logits, normalises(r))
            if r.routed_scaling_factor != 1:
                weights.mul_(r.routed_scaling_factor)
            return {"weights": weights, "ids": ids}
        return launch


class TopkSoftmaxPack(Sglang):
    name = "topk_softmax_pack"
    about = ("topk_softmax that packs id << 16 | bf16 weight as well, unpacked here (opt-in by "
             "SGLANG_OPT_LORA_FUSED_TOPK_PACK): kernels/jit/csrc/lora/trtllm_lora_temp")
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    scores = ("softmax",)
    by_logit = True
    bias = False
    profile = "sglang"

    def arithmetic(self, router, rows):
        return "bf16-weights"

    def refuses_shape(self, router, rows):
        if router.experts & (router.experts - 1) or router.experts > 512:
            return "serves powers of two up to 512 experts"
        if router.routed_scaling_factor != 1:
            return "packs weights that are not scaled"

    def prepare(self, p):
        import torch
        pack, r = of("kernels.ops.lora.moe.trtllm_lora_temp.topk_softmax_pack"), p.router
        weights, ids = weights_and_ids(p)
        packed = p.empty((p.rows, r.top_k), torch.int32)

        def launch():
            pack.topk_softmax_pack(weights, ids, packed, p.logits, normalises(r))
            return {"packed": packed, "weights": weights, "ids": ids}
        return launch

    def repack(self, outputs):
        return unpacked(outputs["packed"])


class MuseSpark(Sglang):
    name = "muse_spark"
    about = ("one warp a row, a sorted slice a lane, without router_score_division_eps, which its model gives "
             "as 1e-15: kernels/jit/csrc/muse_spark/routing.cuh")
    takes = "logits"
    scores = ("sigmoid", "softmax")
    by_logit = True
    norm = True
    most_k = 32
    contiguous = True
    profile = "sglang-triton"
    where, what = "kernels.ops.moe.muse_spark_routing_jit", "fused_muse_spark_routing_jit"

    def refuses_shape(self, router, rows):
        if router.experts % 4:
            return "experts must be a multiple of 4"

    def prepare(self, p):
        self.check(p)
        route, r, bias = getattr(of(self.where), self.what), p.router, bias_of(p)
        weights, ids = weights_and_ids(p)

        def launch():
            return named(route(p.logits, bias, r.top_k, r.routed_scaling_factor,
                               router_score_normalization=r.score, topk_weights=weights,
                               topk_ids=ids))
        return launch


class MuseSparkTriton(MuseSpark):
    name = "muse_spark_triton"
    about = "the same in Triton, unrolled for top_k 8, else a loop: kernels/ops/moe/muse_spark_routing.py"
    most_k = None
    where, what = "kernels.ops.moe.muse_spark_routing", "fused_muse_spark_routing"

    def refuses_shape(self, router, rows):
        return None


class InklingTriton(Sglang):
    name = "sigmoid_gate_topk"
    about = ("sigmoid_gate_topk_renorm without shared experts, in tiles of columns by 64-bit keys: "
             "kernels/ops/moe/sigmoid_gate_topk_renorm.py")
    takes = "logits"
    norm = True
    most_k = 32
    profile = "sglang-triton"

    def refuses_shape(self, router, rows):
        if router.top_k == 1:
            return "top_k 1 without shared experts does not compile: tl.topk of one"

    def prepare(self, p):
        import torch
        gate, r, bias = of("kernels.ops.moe.sigmoid_gate_topk_renorm"), p.router, bias_of(p)
        one = torch.ones(1, device=p.device)

        def launch():
            weights, ids = gate.sigmoid_gate_topk_renorm(p.logits, r.top_k, 0,
                                                         r.routed_scaling_factor, one, bias)[:2]
            return {"weights": weights, "ids": ids}
        return launch


class GateTopk(Sglang):
    name = "gate_topk"
    about = "its stable torch.topk of logits, ids alone: kernels/ops/moe/gate_topk.py"
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    scores = ("softmax",)  # grows with the logit, and so ranks as it does
    by_logit = True
    bias = False
    most_k = 32
    gives = ("ids",)
    profile = "sglang-triton"

    def prepare(self, p):
        topk, r = of("kernels.ops.moe.gate_topk"), p.router

        def launch():
            return {"ids": topk.gate_topk(p.logits.contiguous(), r.top_k, return_values=False)}
        return launch


class Gemma4(Sglang):
    name = "gemma4_routing"
    about = ("gemma4_fused_routing, its scale of each expert set to routed_scaling_factor: "
             "kernels/ops/moe/gemma4_routing.py")
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    scores = ("softmax",)
    by_logit = True
    bias = False
    norm = True
    profile = "sglang-triton"

    def refuses_shape(self, router, rows):
        if router.experts > 1024:
            return "at most 1024 experts"

    def prepare(self, p):
        import torch
        gemma, r = of("kernels.ops.moe.gemma4_routing"), p.router
        scale = torch.full((r.experts,), r.routed_scaling_factor, device=p.device)
        return lambda: named(gemma.gemma4_fused_routing(p.logits, scale, r.top_k))


class HashTopk(Sglang):
    name = "hash_topk"
    about = ("DeepSeek-V4's hash layers: the table holds torch's choice for each row, so that weights are "
             "judged; scaled behind it: kernels/jit/csrc/deepseek_v4/hash_topk.cuh")
    takes = "logits"
    scores = ("sqrtsoftplus",)
    norm = True
    most_k = 32
    contiguous = True

    def refuses_shape(self, router, rows):
        if router.n_group > 1:
            return "has no groups"

    def prepare(self, p):
        import torch
        self.check(p)
        dsv4, r = of("kernels.ops.moe.dsv4"), p.router
        tokens = torch.arange(p.rows, device=p.device)

        def launch():
            keys = torch.nn.functional.softplus(p.logits.double()).sqrt()
            keys = keys if p.bias is None else keys + p.bias
            table = keys.argsort(dim=-1, descending=True, stable=True)[:, :r.top_k].int().contiguous()
            weights, ids = dsv4.hash_topk(p.logits, tokens, table)
            return {"weights": weights * r.routed_scaling_factor, "ids": ids}
        return launch


def kernels():
    return [FusedGate(), FusedGatePadded(), FusedGateLog1p(), FusedGatePacked(), RouteRadix(),
            RouteRadixSorted(), KimiGate(), TopkSigmoid(), TopkSoftmax(), TopkSoftmaxPack(), MuseSpark(),
            MuseSparkTriton(), InklingTriton(), GateTopk(), Gemma4(), HashTopk()]
