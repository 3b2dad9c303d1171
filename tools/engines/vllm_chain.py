"""From hidden states to ids and weights as vLLM's models do it on one Hopper GPU: GateLinear chooses its
GEMM by the rows, create_fused_moe_router chooses the router, the router its kernel."""
import vllm_gate
import vllm_grouped
import vllm_routers
import vllm_topk
from engine import Kernel


class Chain(Kernel):
    gives = ("logits", "ids", "weights")

    def __init__(self, name, model, score, weight="bf16", out="fp32", grouped=False, scale="output",
                 gate_bias=False, after=False):
        """scale: "router": vLLM has the router multiply by routed_scaling_factor; "output": it scales
        the experts' output (apply_routed_scale_to_output), and the weights are multiplied here, in
        fp32, so that they mean what the router's definition says. after: the definition ranks by
        logit; vLLM ranks by the softmax."""
        self.name, self.score, self.weight, self.out = name, score, weight, out
        self.grouped, self.scale, self.gate_bias, self.after = grouped, scale, gate_bias, after
        said = "" if scale == "router" else "; routed_scaling_factor multiplied in by the adapter, " \
            "since vLLM scales the experts' output"
        self.about = f"vLLM as {model}: GateLinear ({weight} weight, " \
            f"{'bf16' if out == 'model' else out} logits), then its router{said}"

    def refuses(self, router, rows):
        if router.score != self.score or router.rank_by_logit != self.after:
            return f"the model's score is {self.score}" + (" after the top-k" if self.after else "")
        if self.grouped and not router.bias:
            return "the model has a correction bias"
        if not self.grouped and router.n_group > 1:
            return "the model has no groups"
        if self.score == "softmax" and router.bias:
            return "the model has no correction bias"
        if self.score == "sqrtsoftplus" and not router.bias:
            return "the model has a correction bias"
        if self.grouped:
            reason = vllm_grouped.Grouped("fp32").serves(router)
            if reason:
                return reason
        if self.score == "sqrtsoftplus" and router.experts not in (256, 384):
            return "the model has 256 or 384 experts"
        return vllm_gate.gate_refuses(router, rows, self.weight, self.out, self.gate_bias)

    def arithmetic(self, router, rows):
        words = [vllm_gate.gate_line(router, rows, self.weight, self.out),
                 self.top_k("bf16" if self.out == "model" else "fp32", router).arithmetic(router, rows)]
        return "+".join(word for word in words if word != "fp32") or "fp32"

    def top_k(self, kind, router):
        """The kernel that the router takes for logits of that type."""
        if self.grouped:
            return vllm_grouped.Grouped(kind)
        if self.score == "sqrtsoftplus":
            dsv4 = vllm_topk.Dsv4()
            return dsv4 if kind == "fp32" and dsv4.serves(router) is None else vllm_topk.Softplus(kind)
        return (vllm_topk.SoftmaxAfter if self.after else vllm_topk.Softmax)(kind)

    def prepare(self, problem):
        r = problem.router
        gate = vllm_gate.gate_linear(problem, self.weight, self.out)
        inside = r.routed_scaling_factor if self.scale == "router" else 1.0
        factory = vllm_routers.router("router_factory")
        router = factory.create_fused_moe_router(
            top_k=r.top_k, global_num_experts=r.experts,
            renormalize=True if self.after else r.norm_topk_prob, use_grouped_topk=self.grouped,
            num_expert_group=r.n_group if self.grouped else None,
            topk_group=(r.topk_group if r.n_group > 1 else 1) if self.grouped else None,
            scoring_func=self.score, routed_scaling_factor=inside,
            e_score_correction_bias=problem.bias if r.bias else None)
        outside = r.routed_scaling_factor / inside

        def launch():
            logits = gate(problem.hidden)
            weights, ids = router.select_experts(problem.hidden, logits)
            if outside != 1.0:
                weights = weights * outside
            return {"logits": logits, "ids": ids, "weights": weights}
        return launch


def kernels():
    return [
        Chain("chain_deepseek_v3", "deepseek_v2.py does by default", "sigmoid", out="model",
              grouped=True),
        Chain("chain_deepseek_v3_fp32", "deepseek_v2.py and glm5next do with moe_router_dtype float32 "
              "(GLM-5 always)", "sigmoid", grouped=True),
        Chain("chain_glm4_moe", "glm4_moe.py does", "sigmoid", weight="fp32", grouped=True),
        Chain("chain_kimi_k3", "kimi_k3 does", "sigmoid", grouped=True, scale="router"),
        Chain("chain_deepseek_v4", "deepseek_v4 does", "sqrtsoftplus", scale="router"),
        Chain("chain_qwen3_moe", "qwen3_moe.py and mixtral.py do", "softmax", out="model"),
        Chain("chain_mixtral", "mixtral.py does, for a definition that ranks by logit", "softmax",
              out="model", after=True),
        Chain("chain_gpt_oss", "gpt_oss.py does", "softmax", out="model", gate_bias=True, after=True),
    ]
