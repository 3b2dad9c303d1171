"""SGLang's Python: select_experts, through which all of its MoE layers choose, and the torch functions
that it falls back to. The latter are under torch.compile in the engine; here both ways, since Inductor
keeps in fp32 what torch rounds to the logits' type."""
from engine import Unsupported
from for_sglang_common import Sglang, bias_of, named, normalises, of

TOPK = "srt.layers.moe.topk"


def config_of(p, bias):
    """The TopKConfig that its models build. Grouped top-k, also with one group, is what the models with
    sigmoids and a bias ask for (DeepSeek, GLM, Kimi); the others leave it out."""
    r, topk = p.router, of(TOPK)
    grouped = bias is not None and (r.score == "sigmoid" or r.n_group > 1)
    return topk.TopKConfig(
        top_k=r.top_k, use_grouped_topk=grouped, renormalize=normalises(r),
        num_expert_group=r.n_group if grouped else None,
        topk_group=r.topk_group if grouped else None, correction_bias=bias,
        routed_scaling_factor=r.routed_scaling_factor, apply_routed_scaling_factor_on_output=True,
        scoring_func=r.score)


def selector(p, flashinfer=False):
    """logits -> (weights, ids) by select_experts. FlashInfer's fused_topk_deepseek takes the place of
    Triton's router where FlashInfer is installed: so it is taken out, or asked for."""
    topk = of(TOPK)
    theirs = getattr(topk, "fused_topk_deepseek", None)
    if flashinfer and theirs is None:
        raise Unsupported("FlashInfer is not installed beside SGLang")
    # Sigmoids and sqrt-softplus insist on a bias: models without one pass zeros.
    config = config_of(p, p.bias if p.router.score == "softmax" else bias_of(p))

    def select(logits):
        topk.fused_topk_deepseek = theirs if flashinfer else None
        try:
            out = topk.select_experts(logits, logits, config)
        finally:
            topk.fused_topk_deepseek = theirs
        return out.topk_weights, out.topk_ids
    return select


class SelectExperts(Sglang):
    name = "select_experts"
    about = ("what every MoE layer calls, without FlashInfer: srt/layers/moe/topk.py; a softmax router "
             "with a bias is ERNIE 4.5's way through it")
    takes = "logits"
    logits_types = ("fp32", "bf16")
    scores = ("sigmoid", "sqrtsoftplus", "softmax")
    by_logit = True
    flashinfer = False

    def refuses(self, router, rows):
        if router.rank_by_logit and router.score != "softmax":
            return "ranks by score, and this router by logit"
        if router.n_group > 1 and not router.bias:
            return "goes to grouped_topk_gpu: see that kernel"
        if router.n_group > 1 and router.group_score != "top2-sum":
            return "groups with a bias are ranked by the sum of their two largest keys"
        return self.refuses_shape(router, rows)

    def prepare(self, p):
        select = selector(p, self.flashinfer)
        return lambda: named(select(p.logits))


class SelectExpertsFlashInfer(SelectExperts):
    name = "select_experts_flashinfer"
    about = "the same beside FlashInfer, whose fused_topk_deepseek it then takes where that serves"
    profile = None
    flashinfer = True

    def refuses_shape(self, router, rows):
        n, k, groups = router.experts, router.top_k, router.n_group
        fits = n & (n - 1) == 0 and k <= 8 and normalises(router) and router.score == "sigmoid" \
            and router.bias
        size = n // groups
        if not fits or (groups > 1 and (size > 32 or size * router.topk_group > 128)) \
                or (groups == 1 and n > 384) or router.topk_group * groups < k:
            return "select_experts does not go to FlashInfer for this router"


class Fallback(Sglang):
    """One of its torch functions. `compiled`: as the engine decorates it, which is the only way that is
    declared fp32; else what is under the decorator."""
    takes = "logits"
    function = ""
    compiled = True

    def body(self):
        f = getattr(of(TOPK), self.function)
        inner = getattr(f, "_torchdynamo_orig_callable", None)
        if not self.compiled and inner is None:
            raise Unsupported(f"{self.function} is not decorated by torch.compile as expected")
        return f if self.compiled else inner

    def call(self, p, f):
        r = p.router
        return f(p.logits, p.logits, bias_of(p), r.top_k, normalises(r),
                 routed_scaling_factor=r.routed_scaling_factor,
                 apply_routed_scaling_factor_on_output=True, **self.options(p))

    def options(self, p):
        return {}

    def prepare(self, p):
        f = self.body()
        self.call(p, f)
        return lambda: named(self.call(p, f))


class BiasedTopk(Fallback):
    name = "biased_topk_impl"
    about = "sigmoid or sqrt-softplus, compiled: srt/layers/moe/topk.py"
    scores = ("sigmoid", "sqrtsoftplus")
    function = "biased_topk_impl"

    def options(self, p):
        return {"scoring_func": p.router.score}


class KimiTopk(Fallback):
    name = "kimi_k2_biased_topk_impl"
    about = "sigmoid without groups, compiled: srt/layers/moe/topk.py"
    function = "kimi_k2_biased_topk_impl"


class BiasedGroupedTopk(Fallback):
    name = "biased_grouped_topk_impl"
    about = "sigmoid in groups by their two largest keys, compiled: srt/layers/moe/topk.py"
    groups = "top2-sum"
    function = "biased_grouped_topk_impl"

    def options(self, p):
        return {"num_expert_group": p.router.n_group, "topk_group": p.router.topk_group}


class GroupedTopk(Fallback):
    name = "grouped_topk_gpu"
    about = "groups by their largest score, others masked with 0.0, compiled: srt/layers/moe/topk.py"
    scores = ("softmax", "sigmoid")
    bias = False
    groups = "max"
    function = "grouped_topk_gpu"

    def call(self, p, f):
        r = p.router
        return f(p.logits, p.logits, r.top_k, normalises(r), r.n_group, r.topk_group,
                 routed_scaling_factor=r.routed_scaling_factor,
                 apply_routed_scaling_factor_on_output=True, scoring_func=r.score)


class Bf16(Fallback):
    """As torch runs it line by line on bf16 logits: scores are bf16, and weights too where no fp32 sum
    divides them."""
    logits_types = ("bf16",)
    compiled = False

    def arithmetic(self, router, rows):
        return "bf16-scores" + ("" if normalises(router) else "+bf16-weights")


class BiasedTopkBf16(Bf16, BiasedTopk):
    name = "biased_topk_impl_bf16"
    about = "the same on bf16 logits, not compiled: scores in bf16"


class BiasedGroupedTopkBf16(Bf16, BiasedGroupedTopk):
    name = "biased_grouped_topk_impl_bf16"
    about = "the same on bf16 logits, not compiled: scores in bf16"


class GroupedTopkBf16(Bf16, GroupedTopk):
    name = "grouped_topk_gpu_bf16"
    about = "the same on bf16 logits, not compiled: scores in bf16"


class TorchNative(Sglang):
    name = "fused_topk_torch_native"
    about = ("score, + bias, topk (unsorted), as the layer runs it under torch.compile at one row; scaled "
             "behind it: srt/layers/moe/topk.py")
    takes = "logits"
    scores = ("sigmoid", "softmax", "sqrtsoftplus")
    by_logit = True

    def prepare(self, p):
        topk, r = of(TOPK), p.router

        def launch():
            weights, ids = topk.fused_topk_torch_native(
                p.logits, p.logits, r.top_k, normalises(r), p.bias, r.score)
            return {"weights": weights * r.routed_scaling_factor, "ids": ids}
        return launch


class RawLogits(Sglang):
    name = "raw_logits"
    about = ("fused_topk_softmax_torch_raw_logits: topk of logits (unsorted), softmax of the selected; "
             "scaled behind it: srt/layers/moe/topk.py")
    takes = "logits"
    logits_types = ("fp32", "bf16")
    scores = ("softmax",)
    by_logit = True
    bias = False
    norm = True  # without renormalize it gives logits for weights

    def prepare(self, p):
        topk, r = of(TOPK), p.router

        def launch():
            weights, ids = topk.fused_topk_softmax_torch_raw_logits(p.logits, p.logits, r.top_k, True)
            return {"weights": weights * r.routed_scaling_factor, "ids": ids}
        return launch


def kernels():
    return [SelectExperts(), SelectExpertsFlashInfer(), BiasedTopk(), KimiTopk(), BiasedGroupedTopk(),
            GroupedTopk(), BiasedTopkBf16(), BiasedGroupedTopkBf16(), GroupedTopkBf16(), TorchNative(),
            RawLogits()]
