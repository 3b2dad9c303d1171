"""Smallest inputs for what the source of vLLM 0.33.0 makes suspicious (docs/findings/vllm.md).

    python3 tools/engines/suspects_vllm.py [NAME...]     on a machine with a GPU, VLLM_SOURCE set

Prints, for each, what came out and what is right, and whether the suspicion is confirmed. Exit status 1
if one is."""
import sys

import torch

import vllm_routers
import vllm_tree

CUDA = "cuda"


def topk(name, logits, k, renormalize=True, bias=None, scale=1.0):
    """weights, ids of one of vLLM's operators topk_softmax, topk_sigmoid, topk_softplus_sqrt."""
    rows = len(logits)
    weights = torch.full((rows, k), float("nan"), device=CUDA)
    ids = torch.full((rows, k), -7, dtype=torch.int32, device=CUDA)
    where = torch.empty_like(ids)
    rest = {"topk_softmax": (renormalize, bias, None),
            "topk_sigmoid": (renormalize, bias, scale, None),
            "topk_softplus_sqrt": (renormalize, scale, bias, None, None, None, None, 0)}[name]
    getattr(vllm_tree.operators("_moe_C"), name)(weights, ids, where, logits, *rest)
    return weights, ids


def grouped(logits, groups, chosen, k, bias, scale=1.0):
    return vllm_tree.operators("_moe_C").grouped_topk(logits, groups, chosen, k, True, scale, bias, 1)


def distinct(ids):
    return len(set(ids.tolist())) == ids.numel()


def show(*words):
    print("   ", *words)


def ladder(experts, first, step=0.25):
    """One row of logits, falling."""
    return torch.tensor([[first - step * i for i in range(experts)]], device=CUDA)


def right(scores, k, scale=1.0):
    best = scores.double().sort(1, descending=True)[0][:, :k]
    return best / best.sum(1, keepdim=True) * scale


def sigmoid_cancel():
    """grouped_topk, one group, 128 experts: the weight is (sigmoid + bias) - bias."""
    logits, bias = ladder(128, -13.0), torch.full((128,), 12.0, device=CUDA)
    weights, ids = grouped(logits, 1, 1, 8, bias)
    expected = right(logits.double().sigmoid(), 8)
    error = ((weights - expected) / expected).abs().max().item()
    show("bias 12, logits -13, -13.25 ...: weights", weights[0, :3].tolist(), "right",
         expected[0, :3].tolist(), f"off by up to {error:.2g} relatively")
    return error > 1e-4


def sigmoid_cancel_rows():
    """grouped_topk, one group, 256 experts: exact up to 1024 rows, cancelled above."""
    bias = torch.full((256,), 12.0, device=CUDA)
    few = grouped(ladder(256, -1.0).repeat(1024, 1), 1, 1, 8, bias)
    many = grouped(ladder(256, -1.0).repeat(1025, 1), 1, 1, 8, bias)
    show("row 0 of 1024:", few[0][0].tolist())
    show("row 0 of 1025:", many[0][0].tolist())
    return not torch.equal(few[0][0], many[0][0])


def softplus_cancel():
    """topk_softplus_sqrt: the weight is (score + bias) - bias."""
    logits, bias = ladder(128, -12.0), torch.full((128,), 8.08, device=CUDA)
    weights, ids = topk("topk_softplus_sqrt", logits, 6, bias=bias)
    expected = right(torch.nn.functional.softplus(logits.double()).sqrt(), 6)
    error = ((weights - expected) / expected).abs().max().item()
    show("bias 8.08, logits -12, -12.25 ...: weights", weights[0, :3].tolist(), "right",
         expected[0, :3].tolist(), f"off by up to {error:.2g} relatively")
    return error > 1e-5


def softplus_tail():
    """topk_softplus_sqrt and dsv4_topk: log(1 + exp(x)) is 0 below -16.64: all weights are 0."""
    logits, bias = torch.full((1, 256), -17.0, device=CUDA), torch.zeros(256, device=CUDA)
    classic = topk("topk_softplus_sqrt", logits, 6, bias=bias)[0]
    triton = vllm_routers.router("dsv4_topk").dsv4_topk(logits, bias, torch.int32, 1.0)[0]
    show("all logits -17: weights", classic[0].tolist(), "and", triton[0].tolist(), "right: 1/6 each")
    return classic.sum().item() == 0 or triton.sum().item() == 0


def softplus_overflow():
    """log1pf(expf(x)) without a threshold is Inf from 88.73 on; its kernel is gone in 0.33.0."""
    logits, bias = torch.full((1, 256), 90.0, device=CUDA), torch.zeros(256, device=CUDA)
    weights = topk("topk_softplus_sqrt", logits, 6, bias=bias)[0]
    show("all logits 90: weights", weights[0].tolist(), "right: 1/6 each")
    return not bool(torch.isfinite(weights).all())


def negative_bias():
    """topk_sigmoid, 100 experts (no warp kernel): a key below -1 loses to the start value -1 of expert 0."""
    logits, bias = ladder(100, 0.0, 0.01), torch.full((100,), -3.0, device=CUDA)
    weights, ids = topk("topk_sigmoid", logits, 8, bias=bias)
    show("bias -3 everywhere: ids", ids[0].tolist(), "right: 0 to 7, each once")
    return not distinct(ids[0])


def stride():
    """topk_softmax reads rows of 60 logits that lie 64 apart as if they lay 60 apart."""
    wide = torch.randn(4, 64, device=CUDA, generator=torch.Generator(CUDA).manual_seed(1))
    view = wide[:, :60]
    ids = topk("topk_softmax", view, 4)[1]
    expected = topk("topk_softmax", view.contiguous(), 4)[1]
    show("rows 1 to 3 of a strided view:", ids[1:].tolist(), "right:", expected[1:].tolist())
    return not torch.equal(ids, expected)


def excluded_group():
    """grouped_topk, generic kernel: fewer than top_k finite logits in the chosen groups: expert 0."""
    logits = torch.full((1, 512), float("-inf"), device=CUDA)
    for group in (4, 5, 6, 7):
        logits[0, group * 32] = 1.0
    weights, ids = grouped(logits, 16, 4, 8, torch.zeros(512, device=CUDA))
    show("4 finite logits, groups 4 to 7: ids", ids[0].tolist(), "right: 128, 160, 192, 224, then "
         "any others, each once")
    return not distinct(ids[0])


def bias_bf16():
    """grouped_topk, generic kernel, bf16 logits: score + bias is bf16; 6.90 and 6.92 are one number."""
    logits = torch.full((1, 512), -4.0, device=CUDA, dtype=torch.bfloat16)
    bias = torch.zeros(512, device=CUDA)
    bias[0], bias[1] = 6.90, 6.92
    ids = grouped(logits, 16, 4, 1, bias)[1]
    show("equal logits, bias 6.90 of expert 0, 6.92 of expert 1: ids", ids[0].tolist(), "right: [1]")
    return ids[0, 0].item() != 1


def invalid_groups():
    """GroupedTopKRouter: groups that do not divide the experts, no bias: softmax, and no scaling."""
    logits = torch.randn(2, 128, device=CUDA, generator=torch.Generator(CUDA).manual_seed(1))
    router = vllm_routers.router("router_factory").create_fused_moe_router(
        top_k=8, global_num_experts=128, renormalize=True, use_grouped_topk=True, num_expert_group=7,
        topk_group=2, scoring_func="sigmoid", routed_scaling_factor=2.5)
    weights, ids = router.select_experts(logits, logits)
    expected = right(logits.double().sigmoid(), 8, 2.5)
    show(f"{type(router).__name__}, sigmoid, factor 2.5: sum of weights", weights.sum(1).tolist(),
         "first", weights[0, 0].item(), "right: 2.5, first", expected[0, 0].item())
    return abs(weights.sum().item() - 5) > 1e-3


def no_bias_scale():
    """create_fused_moe_router without groups and bias has no place for routed_scaling_factor."""
    logits = torch.randn(2, 128, device=CUDA, generator=torch.Generator(CUDA).manual_seed(1))
    router = vllm_routers.router("router_factory").create_fused_moe_router(
        top_k=8, global_num_experts=128, renormalize=True, routed_scaling_factor=2.5)
    weights = router.select_experts(logits, logits)[0]
    show(f"{type(router).__name__}, factor 2.5: sum of weights", weights.sum(1).tolist())
    return abs(weights.sum().item() - 5) > 1e-3


def nan_rows():
    """NaN logits (CUDA graph padding): ids must stay distinct and in range (vllm#39391)."""
    bad, bias = torch.full((1, 256), float("nan"), device=CUDA), torch.zeros(256, device=CUDA)
    found = {"topk_softmax": topk("topk_softmax", bad, 8)[1],
             "topk_sigmoid": topk("topk_sigmoid", bad, 8, bias=bias)[1],
             "topk_softplus_sqrt": topk("topk_softplus_sqrt", bad, 6, bias=bias)[1],
             "grouped_topk, 1 group": grouped(bad, 1, 1, 8, bias)[1],
             "grouped_topk, 8 groups": grouped(bad, 8, 4, 8, bias)[1]}
    for name, ids in found.items():
        show(f"{name}: ids", ids[0].tolist())
    return not all(distinct(ids[0]) and 0 <= ids.min() and ids.max() < 256 for ids in found.values())


SUSPECTS = {f.__name__: f for f in (
    sigmoid_cancel, sigmoid_cancel_rows, softplus_cancel, softplus_tail, softplus_overflow,
    negative_bias, stride, excluded_group, bias_bf16, invalid_groups, no_bias_scale, nan_rows)}


def main(names):
    unknown = [name for name in names if name not in SUSPECTS]
    if unknown:
        sys.exit(f"no suspect {unknown[0]}; known: {' '.join(SUSPECTS)}")
    found = vllm_tree.find()
    if found.version is None or not torch.cuda.is_available():
        print(found.reason or "no GPU")
        return 2
    print(f"vLLM {found.version}, {torch.cuda.get_device_name()}")
    confirmed = 0
    for name in names or SUSPECTS:
        print(f"{name}: {SUSPECTS[name].__doc__.strip()}")
        try:
            yes = SUSPECTS[name]()
            torch.cuda.synchronize()
        except Exception as error:  # the others are of interest, too
            show(f"{type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        show("CONFIRMED" if yes else "refuted")
        confirmed += yes
    return 1 if confirmed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
