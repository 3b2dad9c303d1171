"""The routing stage in front of FlashInfer's trtllm-gen fused MoE, and moe_sort.

trtllm_gen_routing is refused on 9.0 by a check of compute capability (fused_moe/trtllm_gen_routing.py:36)
and by flags (jit/fused_moe.py:504); its CUDA code has sm_90 paths, and moe_sort, which FlashInfer builds
for 9.0, runs the same files. So it is built for sm_90a here: kernels named *_forced.
"""
from engine import Kernel
from flashinfer_package import built, dense_logits, moe_utils_spec, module, routing_spec

TILE = 8


def tiles(rows, top_k, experts, tile):
    """The most tiles that positions can fill: runner.h's getMaxNumCtasInBatchDim."""
    left = rows * top_k
    filled = min(experts, left)
    return filled + (left - filled) // tile


def positions_in_order(slots, total, tile_expert, tile):
    """slots [rows, k]: the place of each position. sorted: positions by place, padding of rows * k."""
    import torch
    flat = slots.reshape(-1).long().cpu()
    n, size = flat.numel(), tile_expert.numel() * tile
    out = torch.full((size,), n, dtype=torch.int32)
    inside = (flat >= 0) & (flat < size)
    out[flat[inside]] = torch.arange(n, dtype=torch.int32)[inside]
    return {"sorted": out, "tile_expert": tile_expert, "sorted_total": total}


class Routing(Kernel):
    """Weights are bf16 whatever the logits are. The experts are read off the sorted places, as its Python
    does: no kernel writes them."""
    takes = "logits"
    logits_types = ("fp32", "bf16")
    gives = ("ids", "weights", "sorted", "tile_expert", "sorted_total")
    compiles = True
    tile = TILE
    score = "sigmoid"
    zero_bias = False  # the method reads a bias, also where the router has none

    def __init__(self):
        self.name = f"routing_{self.method.lower()}_forced"
        self.about = (f"trtllm_gen_routing, {self.method}, built for sm_90a past FlashInfer's check of "
                      "capability: csrc/fused_moe/trtllm_backend/trtllm_fused_moe_routing_*.cu")

    def refuses(self, router, rows):
        if router.score != self.score:
            return f"serves {self.score}"
        if rows * router.top_k >= 1 << 31:
            return "too many positions"
        return self.serves(router)

    def arithmetic(self, router, rows):
        word = "score:sigmoid.tanhf.fast+" if self.score == "sigmoid" else ""
        return word + "bf16-weights"

    def prepare(self, problem):
        import torch
        run = built(routing_spec).trtllm_gen_routing
        method = int(module("tllm_enums").RoutingMethodType[self.method])
        r, rows, logits = problem.router, problem.rows, dense_logits(problem)
        most = tiles(rows, r.top_k, r.experts, TILE)

        def scratch(n):
            return torch.empty(n, dtype=torch.int32, device=problem.device)
        packed, counts = scratch(rows * r.top_k), scratch(max(2 * r.experts, 512))
        tokens, limits, active = scratch(most * TILE), scratch(most), scratch(1)
        weights = problem.empty((rows, r.top_k), torch.bfloat16)
        slots = problem.empty((rows, r.top_k), torch.int32)
        owner, total = problem.empty((most,), torch.int32), problem.empty((1,), torch.int32)
        bias = problem.bias
        if bias is None and self.zero_bias:
            bias = torch.zeros(r.experts, device=problem.device)
        groups = (r.n_group, r.topk_group) if self.method == "DeepSeekV3" else (0, 0)

        def launch():
            run(logits, bias, packed, weights, counts, total, slots, tokens, owner, limits, active,
                r.top_k, 0, *groups, 0, r.experts, float(r.routed_scaling_factor), TILE, method,
                r.norm_topk_prob, True)
            return {"weights": weights, "slots": slots, "tile_expert": owner, "sorted_total": total}
        return launch

    def repack(self, outputs):
        slots, owner = outputs["slots"].long().cpu(), outputs["tile_expert"].cpu()
        tile = slots // TILE
        inside = (slots >= 0) & (tile < owner.numel())
        ids = owner[tile.clamp(0, owner.numel() - 1)].int().masked_fill(~inside, -1)
        return {"ids": ids, "weights": outputs["weights"],
                **positions_in_order(slots, outputs["sorted_total"], owner, TILE)}


class DeepSeekV3(Routing):
    """With groups: routingMainKernel, whose bias is rounded to bf16. Without: routingCustom."""
    method = "DeepSeekV3"
    profile = "flashinfer"
    zero_bias = True

    def serves(self, router):
        if router.rank_by_logit or not router.bias or not router.norm_topk_prob:
            return "serves sigmoid with a correction bias, renormalised"
        if router.top_k > (8 if router.experts <= 384 else 22) or router.topk_group > 4:
            return "top_k <= 8, 22 above 384 experts, at most 4 groups chosen"
        if router.n_group == 1:
            return "E <= 1024" if router.experts > 1024 else None
        size = router.experts // router.n_group
        if router.n_group > 8 or size > 32 or router.group_score != "top2-sum":
            return "at most 8 groups of 32, by the sum of two"
        return "top_k < experts in the chosen groups" if router.top_k >= router.topk_group * size else None

    def arithmetic(self, router, rows):
        return super().arithmetic(router, rows) + ("+bf16-bias" if router.n_group > 1 else "")


class Plain(Routing):
    """No bias, no groups, no scaling; experts and top_k within the tiers that are compiled."""

    def serves(self, router):
        if router.bias or router.n_group > 1 or router.routed_scaling_factor != 1:
            return "no bias, no groups, no scaling"
        if self.means(router) is False:
            return self.meaning
        if router.experts > self.most[0] or router.top_k > self.most[1]:
            return "E <= %d, top_k <= %d" % self.most
        return None

    most = (256, 8)


class Default(Plain):
    method, score, profile = "Default", "softmax", "flashinfer"
    meaning = "softmax, then top-k, not renormalised"

    def means(self, router):
        return not router.rank_by_logit and not router.norm_topk_prob


class Renormalize(Plain):
    method, score, profile = "Renormalize", "softmax", "flashinfer"
    meaning = "top-k, then softmax over the selected"
    most = (2048, 32)

    def means(self, router):
        return router.rank_by_logit or router.norm_topk_prob


class SigmoidRenorm(Plain):
    method, meaning = "SigmoidRenorm", "sigmoid, then top-k"

    def means(self, router):
        return not router.rank_by_logit


class TopKSigmoid(Plain):
    method, meaning = "TopKSigmoid", "top-k, then sigmoid, not renormalised"

    def means(self, router):
        return router.rank_by_logit and not router.norm_topk_prob


class Llama4(TopKSigmoid):
    method, profile, most = "Llama4", "flashinfer", (128, 1)


class MoeSort(Kernel):
    name = "moe_sort"
    about = ("moe_sort: fused_moe/cute_dsl/moe_utils.py, csrc/moe_utils_binding.cu; built with enum "
             "headers of ours in place of those that FlashInfer downloads")
    takes = "ids"
    gives = ("sorted", "tile_expert", "sorted_total")
    tile = 128

    def refuses(self, router, rows):
        return "E <= 2048, top_k <= 32" if router.experts > 2048 or router.top_k > 32 else None

    def prepare(self, problem):
        import torch
        run = built(moe_utils_spec)["flashinfer_moe_sort"]
        r, rows = problem.router, problem.rows
        most = tiles(rows, r.top_k, r.experts, self.tile)
        slots = problem.empty((rows, r.top_k), torch.int32)
        owner, total = problem.empty((most,), torch.int32), problem.empty((1,), torch.int32)

        def scratch(n):
            return torch.empty(n, dtype=torch.int32, device=problem.device)
        limits, back, active = scratch(most), scratch(most * self.tile), scratch(1)
        counts = scratch(2 * r.experts)
        scales = torch.ones((rows, r.top_k), device=problem.device)

        def launch():
            run(problem.ids.data_ptr(), scales.data_ptr(), rows, r.experts, r.top_k, 0, r.experts,
                self.tile, False, owner.data_ptr(), limits.data_ptr(), slots.data_ptr(),
                back.data_ptr(), total.data_ptr(), active.data_ptr(),
                counts.data_ptr() if rows > 1024 else 0, torch.cuda.current_stream().cuda_stream)
            return {"slots": slots, "tile_expert": owner, "sorted_total": total}
        return launch

    def repack(self, outputs):
        return positions_in_order(outputs["slots"], outputs["sorted_total"],
                                  outputs["tile_expert"].cpu(), self.tile)


def kernels():
    return [k() for k in (DeepSeekV3, Default, Renormalize, SigmoidRenorm, TopKSigmoid, Llama4, MoeSort)]
