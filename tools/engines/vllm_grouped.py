"""vLLM's grouped top-k: the CUDA operator (of one group, too: DeepSeek-V3, GLM, Kimi) and the PyTorch
lines that are compiled by Inductor where there is no bias."""
import functools
import types

import vllm_routers
import vllm_tree
from engine import Kernel, Unsupported
from vllm_topk import Op

# invokeNoAuxTc in csrc/moe/grouped_topk_kernels.cu: (experts, top_k) at most, for one group.
SIGMOID_TIERS = ((512, 8), (512, 22), (1024, 16))

PROFILE_ROWS = 8192  # max_num_batched_tokens on an H100 or H200 (vllm/engine/arg_utils.py)


def path(router, rows):
    """Which of its kernels the operator launches."""
    e, k, g = router.experts, router.top_k, router.n_group
    if g == 1:
        if not any(e <= most and k <= top for most, top in SIGMOID_TIERS):
            return "generic"
        tuned = 768 < e and k <= 16  # the tiers of 896 and 1024 experts
        return "block" if tuned or e >= 1024 or (e >= 256 and rows <= 1024) else "warp"
    small = (e <= 256 and e // g <= 32 and e // g * router.topk_group <= 128 and k <= 8
             and router.topk_group <= 4)
    return "small" if small else "generic"


class Grouped(Op):
    base = "grouped_topk"
    about = ("vLLM csrc/moe/grouped_topk_kernels.cu: grouped_topk of logits, routed_scaling_factor "
             "inside. One group: single_group_topk_block_kernel, or _warp_kernel (below 256 experts; "
             "above 1024 rows), whose weight is (score + bias) - bias")

    def serves(self, router):
        if router.score != "sigmoid" or router.rank_by_logit:
            return "serves sigmoid before the top-k"
        if not router.bias:
            return "needs a correction bias (vLLM serves routers without one by PyTorch lines)"
        if router.n_group > 1 and router.group_score != "top2-sum":
            return "groups are ranked by the sum of their two best"
        return self.shape(router)

    def shape(self, router):
        if router.n_group > 32 or router.top_k > 32 or router.experts % router.n_group:
            return "at most 32 groups and 32 of the experts, which the groups divide"
        if router.n_group > 1 and router.topk_group * (router.experts // router.n_group) < router.top_k:
            return "fewer experts in the chosen groups than top_k"
        return None

    def arithmetic(self, router, rows):
        if self.kind != "fp32" and path(router, rows) == "generic":
            return "score:sigmoid.tanhf+bf16-scores+bf16-bias"  # and bf16 keys, which no line says
        return "score:sigmoid.tanhf"

    def prepare(self, problem):
        ops, r = vllm_tree.operators("_moe_C"), problem.router
        chosen = r.topk_group if r.n_group > 1 else 1

        def launch():
            weights, ids = ops.grouped_topk(problem.logits, r.n_group, chosen, r.top_k,
                                            r.norm_topk_prob, r.routed_scaling_factor,
                                            problem.bias, 1)
            return {"ids": ids, "weights": weights}
        return launch


class GroupedSoftmax(Grouped):
    base = "grouped_topk_softmax"
    about = ("vLLM csrc/moe/grouped_topk_kernels.cu: grouped_topk of torch.softmax of the logits, as "
             "grouped_topk_router.py calls it for softmax and a bias")
    profile = None

    def __init__(self):
        super().__init__("fp32")

    def serves(self, router):
        if router.score != "softmax" or router.rank_by_logit or not router.bias:
            return "serves softmax over all experts with a correction bias"
        if router.n_group > 1 and router.group_score != "top2-sum":
            return "groups are ranked by the sum of their two best"
        return self.shape(router)

    def arithmetic(self, router, rows):
        return "score:softmax.torch" if router.experts <= 1024 else "fp32"

    def prepare(self, problem):
        import torch
        ops, r = vllm_tree.operators("_moe_C"), problem.router
        chosen = r.topk_group if r.n_group > 1 else 1

        def launch():
            scores = torch.softmax(problem.logits, dim=-1)
            weights, ids = ops.grouped_topk(scores, r.n_group, chosen, r.top_k, r.norm_topk_prob,
                                            r.routed_scaling_factor, problem.bias, 0)
            return {"ids": ids, "weights": weights}
        return launch


@functools.lru_cache(None)
def python_lines(router, compiled):
    """The function grouped_topk of grouped_topk_router.py with an `envs` that says
    VLLM_USE_FUSED_MOE_GROUPED_TOPK=0: else it calls the operator above wherever there is a bias. One
    function for each router, with a code object of its own: torch.compile keeps what it compiles with the
    code object, eight versions of it at most, and looks it up by names in the function's globals; vLLM
    has one router in a process."""
    import torch
    module = vllm_routers.router("grouped_topk_router")
    lines = getattr(module.grouped_topk, "_torchdynamo_orig_callable", None)
    if lines is None:
        raise Unsupported("this PyTorch does not keep the function that it compiled")
    envs = types.SimpleNamespace(VLLM_USE_FUSED_MOE_GROUPED_TOPK=False, VLLM_BATCH_INVARIANT=False)
    lines = types.FunctionType(lines.__code__.replace(), {**lines.__globals__, "envs": envs},
                               lines.__name__, lines.__defaults__)
    if not compiled:
        return lines
    return torch.compile(lines, dynamic=True, backend="inductor", options={"graph_partition": False})


class GroupedPython(Kernel):
    """Routers without a bias go here; those with one only under VLLM_USE_FUSED_MOE_GROUPED_TOPK=0."""
    takes = "logits"
    name = "grouped_topk_python"
    about = ("vLLM fused_moe/router/grouped_topk_router.py: grouped_topk, the PyTorch lines, compiled "
             "by Inductor as there")
    compiled = True

    def refuses(self, router, rows):
        if router.score == "sqrtsoftplus" or router.rank_by_logit:
            return "serves sigmoid and softmax before the top-k"
        if router.n_group > 1 and (router.group_score == "top2-sum") != router.bias:
            return "groups are ranked by the sum of their two best with a bias, by the best without"
        if router.experts <= router.n_group or router.experts % router.n_group:
            return "groups must divide the experts"
        return None

    def arithmetic(self, router, rows):
        if router.score == "sigmoid":
            return "score:sigmoid.triton" if self.compiled else "score:sigmoid.expf"
        # Inductor adds up a softmax in an order of its own.
        return "fp32" if self.compiled or router.experts > 1024 else "score:softmax.torch"

    def prepare(self, problem):
        r = problem.router
        lines, bias = python_lines(r, self.compiled), problem.bias if r.bias else None

        def call(logits):
            return lines(logits, logits, r.top_k, r.norm_topk_prob, r.n_group,  # hidden: rows alone
                         r.topk_group if r.n_group > 1 else 1, r.score, r.routed_scaling_factor, bias)

        if self.compiled and problem.rows > 1:
            # Inductor's choices are made for the rows that it sees first, in vLLM its profile run's.
            call(problem.logits.new_zeros((PROFILE_ROWS, r.experts)))

        def launch():
            weights, ids = call(problem.logits)
            return {"ids": ids, "weights": weights}
        return launch


class GroupedEager(GroupedPython):
    name = "grouped_topk_eager"
    about = "the same PyTorch lines, not compiled"
    compiled = False


def kernels():
    return [Grouped("fp32"), Grouped("bf16"), GroupedSoftmax(), GroupedPython(), GroupedEager()]
