"""FlashInfer's kernels from logits to experts: NoAuxTc, hash_topk, the general top_k."""
from engine import Kernel, Unsupported
from flashinfer_package import dense_logits, module


class FusedTopkDeepseek(Kernel):
    """Compiled with FlashInfer's default flags, -use_fast_math among them: tanhf is tanh.approx."""
    name = "fused_topk_deepseek"
    about = "fused_topk_deepseek (NoAuxTc): fused_moe/fused_routing_dsv3.py, csrc/fused_moe/noAuxTcKernels.cu"
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    profile = "flashinfer-tc"

    def refuses(self, router, rows):
        """As its Python check has it (lines 88 to 188), which allows more than the kernel serves."""
        if router.score != "sigmoid" or router.rank_by_logit or not router.bias:
            return "serves sigmoid with a correction bias alone"
        if not router.norm_topk_prob:
            return "always renormalises"
        if router.top_k > 8:
            return "top_k <= 8"
        candidates = router.topk_group * router.n_group  # sic: not the size of a group
        if candidates < router.top_k:
            return (f"its check wants topk_group * n_group, {candidates}, to be no less than top_k, "
                    f"{router.top_k}: fused_routing_dsv3.py:167")
        if router.n_group == 1:
            return "E <= 384 without groups" if router.experts > 384 else None
        if router.group_score != "top2-sum":
            return "group score is the sum of two"
        size = router.experts // router.n_group
        if size > 32 or size * router.topk_group > 128 or router.n_group > 32:
            return "at most 32 groups, 32 experts a group, 128 experts in the chosen groups"
        return None

    def arithmetic(self, router, rows):
        return "score:sigmoid.tanhf.fast"

    def prepare(self, problem):
        import torch
        call = module("fused_moe.fused_routing_dsv3").fused_topk_deepseek
        r, logits, bias = problem.router, dense_logits(problem), problem.bias
        weights = problem.empty((problem.rows, r.top_k), logits.dtype)
        ids = problem.empty((problem.rows, r.top_k), torch.int32)

        def launch():
            call(logits, bias, r.n_group, r.topk_group, r.top_k, r.routed_scaling_factor, weights, ids)
            return {"ids": ids, "weights": weights}
        return launch


class AfterTopEight(FusedTopkDeepseek):
    """The kernel reads 8 candidates of each 128 experts from shared memory and writes top_k of them
    (noAuxTcKernels.cu:175): with top_k < 8 and E > 128 the rest is what stood there. Here a launch of
    the same kernel with top_k = 8 stands in front, on logits of 16, whose scores beat most."""
    name = "fused_topk_deepseek_after_8"
    about = "fused_topk_deepseek as it is, behind a launch of itself with top_k = 8 on other logits"
    BEFORE = 4096  # blocks: more than stand on the device at once

    def refuses(self, router, rows):
        no = super().refuses(router, rows)
        if no is None and (router.top_k == 8 or router.n_group > 1 or router.experts <= 128):
            no = "of interest for top_k < 8, no groups, E > 128"
        return no or "the launch in front has top_k = 8 and one group: " + \
            "refused as 1 * 1 < 8: fused_routing_dsv3.py:167"

    def prepare(self, problem):
        import torch
        call = module("fused_moe.fused_routing_dsv3").fused_topk_deepseek
        launch_own = super().prepare(problem)
        before = torch.full((self.BEFORE, problem.router.experts), 16.0, dtype=problem.logits.dtype,
                            device=problem.device)
        weights = torch.empty((self.BEFORE, 8), dtype=before.dtype, device=problem.device)
        ids = torch.empty((self.BEFORE, 8), dtype=torch.int32, device=problem.device)

        def launch():
            call(before, problem.bias, 1, 1, 8, 1.0, weights, ids)
            return launch_own()
        return launch


class HashTopk(Kernel):
    """The experts come from a table, token by token; the kernel gives their weights. The table is made
    in front of each launch, in fp64: only the weights are the kernel's."""
    name = "hash_topk"
    about = ("hash_topk: fused_moe/hash_topk.py, include/flashinfer/fused_moe/hash_topk.cuh; the table of "
             "experts is the adapter's (fp64), and the scaling, which it leaves to the caller")
    takes = "logits"

    def refuses(self, router, rows):
        if router.score != "sqrtsoftplus" or router.rank_by_logit or not router.norm_topk_prob:
            return "serves sqrt-softplus, renormalised"
        if router.n_group > 1:
            return "no groups"
        return "top_k <= 32" if router.top_k > 32 else None

    def arithmetic(self, router, rows):
        return "score:sqrt-softplus.fmaxf.fast"

    def prepare(self, problem):
        import torch
        call = module("fused_moe.hash_topk").hash_topk
        r, logits = problem.router, dense_logits(problem)
        tokens = torch.arange(problem.rows, dtype=torch.int64, device=problem.device)

        def launch():
            x = logits.double()
            key = (x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))).sqrt()
            if problem.bias is not None:
                key = key + problem.bias.double()
            table = torch.argsort(key, dim=1, descending=True, stable=True)[:, :r.top_k]
            weights, ids = call(logits, tokens, table.to(torch.int32).contiguous(),
                                routed_scaling_factor=r.routed_scaling_factor)
            return {"ids": ids, "weights": weights * r.routed_scaling_factor}
        return launch


class TopK(Kernel):
    """A general selection of the k largest; the softmax over them is torch's, as a caller would do."""
    takes = "logits"
    logits_types = ("fp32", "bf16", "fp16")
    options = {}

    def refuses(self, router, rows):
        after = router.score == "softmax" and (router.rank_by_logit or router.norm_topk_prob)
        if not after or router.bias or router.n_group > 1:
            return "ranks logits: serves softmax over the selected, without bias and groups"
        return None

    def prepare(self, problem):
        import torch
        call = module("topk").top_k
        r = problem.router

        def launch():
            values, ids = call(problem.logits, r.top_k, **self.options)
            weights = torch.softmax(values.float(), 1)
            return {"ids": ids, "weights": weights * r.routed_scaling_factor
                    if r.routed_scaling_factor != 1 else weights}
        return launch


class TopKDefault(TopK):
    name = "top_k"
    about = "top_k as it is called by default (CUB up to 8192 columns): topk.py, csrc/cub_topk.cu; softmax by torch"


class TopKDeterministic(TopK):
    name = "top_k_deterministic"
    about = "top_k(sorted, deterministic, tie_break = 1: smaller index), the radix kernel: csrc/topk.cu; softmax by torch"
    options = {"sorted": True, "deterministic": True, "tie_break": 1}

    def prepare(self, problem):
        if not problem.logits.is_contiguous():
            raise Unsupported("takes rows of logits without gaps: csrc/topk.cu checks it")
        return super().prepare(problem)


KERNELS = (FusedTopkDeepseek, AfterTopEight, HashTopk, TopKDefault, TopKDeterministic)
