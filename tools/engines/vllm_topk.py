"""vLLM's top-k operators, called as csrc/moe declares them: from logits to ids and weights."""
import vllm_routers
import vllm_tree
from engine import Kernel

# Experts that a warp (or a part of one) serves; others take the 256-thread block (softmax, sigmoid) or
# are refused (softplus). topk_softmax_kernels.cu, topk_softplus_sqrt_kernels.cu.
POWERS = tuple(2**i for i in range(10))
MULTIPLES = (192, 320, 384, 448, 576)


class Op(Kernel):
    """A kernel for one type of logits, so that what it may round is one line."""
    takes = "logits"
    profile = "vllm"

    def __init__(self, kind):
        self.kind = kind
        self.logits_types = (kind,)
        self.name = self.base if kind == "fp32" else f"{self.base}_{kind}"

    def serves(self, router):
        """None, or why not."""
        return None

    def refuses(self, router, rows):
        if router.gate_bias and self.takes != "logits":
            return "no linear bias of the gate"
        return self.serves(router)

    def outputs(self, problem):
        import torch
        shape = (problem.rows, problem.router.top_k)
        return (problem.empty(shape, torch.float32), problem.empty(shape, torch.int32),
                torch.empty(shape, dtype=torch.int32, device=problem.device))


class Softmax(Op):
    base = "topk_softmax"
    about = ("vLLM csrc/moe/topk_softmax_kernels.cu: topk_softmax. A routed_scaling_factor is "
             "multiplied in afterwards, as fused_topk_bias_router.py does")

    def serves(self, router):
        if router.score != "softmax" or router.rank_by_logit:
            return "serves softmax over all experts"
        return "no groups" if router.n_group > 1 else None

    def arithmetic(self, router, rows):
        # The layout of the sum, which score:softmax.gating says, is another for 16-bit logits of
        # 2^n experts, and another where a block serves the row.
        n = router.experts
        known = n in MULTIPLES or (self.kind == "fp32" and n in POWERS)
        return "score:softmax.gating" if known else "fp32"

    def prepare(self, problem):
        ops, r = vllm_tree.operators("_moe_C"), problem.router
        bias = problem.bias if r.bias else None

        def launch():
            weights, ids, rows = self.outputs(problem)
            ops.topk_softmax(weights, ids, rows, problem.logits, r.norm_topk_prob, bias, None)
            if r.routed_scaling_factor != 1.0:
                weights *= r.routed_scaling_factor
            return {"ids": ids, "weights": weights}
        return launch


class SoftmaxAfter(Softmax):
    base = "topk_softmax_after"
    about = ("vLLM csrc/moe/topk_softmax_kernels.cu: topk_softmax, renormalised, for routers that rank "
             "by logit and take the softmax of the selected (Mixtral, gpt-oss), as vLLM serves them")
    profile = None

    def serves(self, router):
        if router.score != "softmax" or not router.rank_by_logit:
            return "serves softmax over the selected experts"
        if router.bias:
            return "ranks by softmax + bias, which is another router"
        return "no groups" if router.n_group > 1 else None

    def arithmetic(self, router, rows):
        return "fp32"

    def prepare(self, problem):
        ops, r = vllm_tree.operators("_moe_C"), problem.router

        def launch():
            weights, ids, rows = self.outputs(problem)
            ops.topk_softmax(weights, ids, rows, problem.logits, True, None, None)
            if r.routed_scaling_factor != 1.0:
                weights *= r.routed_scaling_factor
            return {"ids": ids, "weights": weights}
        return launch


class Sigmoid(Op):
    base = "topk_sigmoid"
    about = "vLLM csrc/moe/topk_softmax_kernels.cu: topk_sigmoid, routed_scaling_factor inside"

    def serves(self, router):
        if router.score != "sigmoid" or router.rank_by_logit:
            return "serves sigmoid before the top-k"
        return "no groups" if router.n_group > 1 else None

    def arithmetic(self, router, rows):
        return "score:sigmoid.__expf"

    def prepare(self, problem):
        ops, r = vllm_tree.operators("_moe_C"), problem.router
        bias = problem.bias if r.bias else None

        def launch():
            weights, ids, rows = self.outputs(problem)
            ops.topk_sigmoid(weights, ids, rows, problem.logits, r.norm_topk_prob, bias,
                             r.routed_scaling_factor, None)
            return {"ids": ids, "weights": weights}
        return launch


class Softplus(Op):
    base = "topk_softplus_sqrt"
    about = ("vLLM csrc/moe/topk_softplus_sqrt_kernels.cu: topkGatingSoftplusSqrt, without a hash "
             "table, routed_scaling_factor inside")

    def serves(self, router):
        if router.score != "sqrtsoftplus" or router.rank_by_logit:
            return "serves sqrt-softplus before the top-k"
        if router.experts not in POWERS + MULTIPLES:
            return f"no kernel for {router.experts} experts"
        return "no groups" if router.n_group > 1 else None

    def arithmetic(self, router, rows):
        return "score:sqrt-softplus.__logf"

    def prepare(self, problem):
        ops, r = vllm_tree.operators("_moe_C"), problem.router
        bias = problem.bias if r.bias else None

        def launch():
            weights, ids, rows = self.outputs(problem)
            ops.topk_softplus_sqrt(weights, ids, rows, problem.logits, r.norm_topk_prob,
                                   r.routed_scaling_factor, bias, None, None, None, None, 0)
            return {"ids": ids, "weights": weights}
        return launch


class Dsv4(Op):
    base = "dsv4_topk"
    about = "vLLM fused_moe/router/dsv4_topk.py: Triton kernel of DeepSeek-V4, routed_scaling_factor inside"

    def __init__(self):
        super().__init__("fp32")

    def serves(self, router):
        if router.score != "sqrtsoftplus" or router.rank_by_logit or router.n_group > 1:
            return "serves sqrt-softplus before the top-k, no groups"
        if router.experts not in (256, 384) or router.top_k != 6 or not router.bias \
                or not router.norm_topk_prob:
            return "serves 6 of 256 or 384 experts with a bias, normalised"
        return None

    def arithmetic(self, router, rows):
        return "score:sqrt-softplus.triton"

    def prepare(self, problem):
        import torch
        module, r = vllm_routers.router("dsv4_topk"), problem.router

        def launch():
            weights, ids = module.dsv4_topk(problem.logits, problem.bias, torch.int32,
                                            r.routed_scaling_factor)
            return {"ids": ids, "weights": weights}
        return launch


def kernels():
    return [*(kind(t) for kind in (Softmax, SoftmaxAfter, Sigmoid, Softplus)
              for t in ("fp32", "bf16")), Dsv4()]
