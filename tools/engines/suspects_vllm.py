"""Smallest inputs for what the source of vLLM 0.33.0 makes suspicious (docs/findings/vllm.md).

    python3 tools/engines/suspects_vllm.py [NAME...] [--json F]

on a machine with a GPU, VLLM_SOURCE set. Prints, for each, what came out and what is right, and whether
the suspicion is confirmed. They run in a child, so that one that kills it (or its CUDA context, or takes
longer than half a minute) does not end the others: the rest goes to another child. Exit status: 1 if one
is confirmed, else 3 if one could not be settled, else 0; 2 if nothing can be run."""
import argparse
import json
import multiprocessing
import sys

import torch

import vllm_routers
import vllm_tree
from output_file import output_file

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


def ladder(experts, first, step=0.25):
    """One row of logits, falling."""
    return torch.tensor([[first - step * i for i in range(experts)]], device=CUDA)


def right(scores, k, scale=1.0):
    best = scores.double().sort(1, descending=True)[0][:, :k]
    return best / best.sum(1, keepdim=True) * scale


def relative(weights, expected):
    return ((weights.double() - expected).abs() / expected).max().item()


def cancels(call, logits, bias, expected):
    """A bias that all experts share leaves the ranking as it is, and a score that is kept, too: so the
    weights with it are the weights without it, bit for bit, or the score is not kept."""
    flat = torch.full((logits.shape[1],), bias, device=CUDA)
    weights, plain = call(logits, flat)[0], call(logits, torch.zeros_like(flat))[0]
    return not torch.equal(weights, plain), {
        "input": f"logits {logits[0, 0].item()}, {logits[0, 1].item()}, ...",
        f"weights with bias {bias}": weights[0].tolist(), "weights with bias 0": plain[0].tolist(),
        "right": expected[0].tolist(),
        f"largest relative error with bias {bias}": relative(weights, expected),
        "largest relative error with bias 0": relative(plain, expected)}


def sigmoid_cancel():
    """grouped_topk, one group, 128 experts: the weight is (sigmoid + bias) - bias"""
    logits = ladder(128, -1.0)
    return cancels(lambda x, b: grouped(x, 1, 1, 8, b), logits, 12.0, right(logits.double().sigmoid(), 8))


def sigmoid_cancel_deep():
    """the same where all scores are small"""
    logits = ladder(128, -13.0)
    return cancels(lambda x, b: grouped(x, 1, 1, 8, b), logits, 12.0, right(logits.double().sigmoid(), 8))


def sigmoid_cancel_rows():
    """grouped_topk, one group, 256 experts: the score is kept up to 1024 rows, and cancelled above"""
    logits = ladder(256, -1.0)

    def at(rows):
        return cancels(lambda x, b: grouped(x, 1, 1, 8, b), logits.repeat(rows, 1), 12.0,
                       right(logits.double().sigmoid(), 8))
    few, many = at(1024), at(1025)
    return many[0] and not few[0], {"1024 rows": few[1], "1025 rows": many[1]}


def softplus_cancel():
    """topk_softplus_sqrt: the weight is (score + bias) - bias"""
    logits = ladder(128, 0.0)
    return cancels(lambda x, b: topk("topk_softplus_sqrt", x, 6, bias=b), logits, 8.08,
                   right(torch.nn.functional.softplus(logits.double()).sqrt(), 6))


def softplus_tail():
    """topk_softplus_sqrt: log(1 + exp(x)) is 0 below -16.64: all weights are 0"""
    logits, bias = torch.full((1, 256), -17.0, device=CUDA), torch.zeros(256, device=CUDA)
    weights = topk("topk_softplus_sqrt", logits, 6, bias=bias)[0]
    return weights.sum().item() == 0, {"input": "all logits -17", "weights": weights[0].tolist(),
                                       "right": "1/6 each"}


def softplus_tail_triton():
    """dsv4_topk: the same in Triton"""
    logits, bias = torch.full((1, 256), -17.0, device=CUDA), torch.zeros(256, device=CUDA)
    weights = vllm_routers.router("dsv4_topk").dsv4_topk(logits, bias, torch.int32, 1.0)[0]
    return weights.sum().item() == 0, {"input": "all logits -17", "weights": weights[0].tolist(),
                                       "right": "1/6 each"}


def softplus_overflow():
    """log1pf(expf(x)) without a threshold would be Inf from 88.73 on"""
    logits, bias = torch.full((1, 256), 90.0, device=CUDA), torch.zeros(256, device=CUDA)
    classic = topk("topk_softplus_sqrt", logits, 6, bias=bias)[0]
    triton = vllm_routers.router("dsv4_topk").dsv4_topk(logits, bias, torch.int32, 1.0)[0]
    finite = bool(torch.isfinite(classic).all() and torch.isfinite(triton).all())
    return not finite, {"input": "all logits 90", "topk_softplus_sqrt": classic[0].tolist(),
                        "dsv4_topk": triton[0].tolist(), "right": "1/6 each"}


def negative_bias():
    """topk_sigmoid, 100 experts (no warp kernel): a key below -1 loses to the start value -1 of expert 0"""
    logits, bias = ladder(100, 0.0, 0.01), torch.full((100,), -3.0, device=CUDA)
    weights, ids = topk("topk_sigmoid", logits, 8, bias=bias)
    return sorted(ids[0].tolist()) != list(range(8)), {
        "input": "bias -3, logits 0, -0.01, ...", "ids": ids[0].tolist(),
        "weights": weights[0].tolist(), "right": "0 to 7, each once"}


def stride():
    """topk_softmax reads rows of 60 logits that lie 64 apart as if they lay 60 apart"""
    wide = torch.randn(4, 64, device=CUDA, generator=torch.Generator(CUDA).manual_seed(1))
    view = wide[:, :60]
    ids = topk("topk_softmax", view, 4)[1]
    expected = topk("topk_softmax", view.contiguous(), 4)[1]
    return not torch.equal(ids, expected), {"input": "a view of 60 of 64 columns",
                                            "ids of rows 1 to 3": ids[1:].tolist(),
                                            "right": expected[1:].tolist()}


def excluded_group():
    """grouped_topk, generic kernel: fewer than top_k finite logits in the chosen groups: expert 0"""
    logits = torch.full((1, 512), float("-inf"), device=CUDA)
    for group in (4, 5, 6, 7):
        logits[0, group * 32] = 1.0
    ids = grouped(logits, 16, 4, 8, torch.zeros(512, device=CUDA))[1]
    return not distinct(ids[0]), {"input": "16 groups of 32 experts, 4 finite logits",
                                  "ids": ids[0].tolist(),
                                  "right": "128, 160, 192, 224, then any others, each once"}


def bias_bf16():
    """grouped_topk, generic kernel, bf16 logits: score + bias is bf16; 6.90 and 6.92 are one number"""
    logits = torch.full((1, 512), -4.0, device=CUDA, dtype=torch.bfloat16)
    bias = torch.zeros(512, device=CUDA)
    bias[0], bias[1] = 6.90, 6.92
    ids = grouped(logits, 16, 4, 1, bias)[1]
    return ids[0, 0].item() != 1, {"input": "equal logits, bias 6.90 of expert 0, 6.92 of expert 1",
                                   "ids": ids[0].tolist(), "right": [1]}


def invalid_groups():
    """GroupedTopKRouter: groups that do not divide the experts, no bias: softmax, and no scaling"""
    logits = torch.randn(2, 128, device=CUDA, generator=torch.Generator(CUDA).manual_seed(1))
    router = vllm_routers.router("router_factory").create_fused_moe_router(
        top_k=8, global_num_experts=128, renormalize=True, use_grouped_topk=True, num_expert_group=7,
        topk_group=2, scoring_func="sigmoid", routed_scaling_factor=2.5)
    weights, ids = router.select_experts(logits, logits)
    expected = right(logits.double().sigmoid(), 8, 2.5)
    return abs(weights.sum().item() - 5) > 1e-3, {
        "input": f"{type(router).__name__}, 128 experts, 7 groups, sigmoid, factor 2.5",
        "weights": weights[0].tolist(), "sum": weights[0].sum().item(), "right": expected[0].tolist(),
        "softmax of the same": right(logits.double().softmax(1), 8)[0].tolist()}


def no_bias_scale():
    """create_fused_moe_router without groups and bias has no place for routed_scaling_factor"""
    logits = torch.randn(2, 128, device=CUDA, generator=torch.Generator(CUDA).manual_seed(1))
    router = vllm_routers.router("router_factory").create_fused_moe_router(
        top_k=8, global_num_experts=128, renormalize=True, routed_scaling_factor=2.5)
    weights = router.select_experts(logits, logits)[0]
    return abs(weights.sum().item() - 5) > 1e-3, {
        "input": f"{type(router).__name__}, factor 2.5", "sums of weights": weights.sum(1).tolist(),
        "right": "2.5 each"}


def nan_rows():
    """NaN logits (CUDA graph padding): ids must stay distinct and in range (vllm#39391)"""
    bad, bias = torch.full((1, 256), float("nan"), device=CUDA), torch.zeros(256, device=CUDA)
    found = {"topk_softmax": topk("topk_softmax", bad, 8)[1],
             "topk_sigmoid": topk("topk_sigmoid", bad, 8, bias=bias)[1],
             "topk_softplus_sqrt": topk("topk_softplus_sqrt", bad, 6, bias=bias)[1],
             "grouped_topk, 1 group": grouped(bad, 1, 1, 8, bias)[1],
             "grouped_topk, 8 groups": grouped(bad, 8, 4, 8, bias)[1]}
    good = [distinct(ids[0]) and 0 <= ids.min() and ids.max() < 256 for ids in found.values()]
    return not all(good), {"input": "256 logits, all NaN", **{n: i[0].tolist() for n, i in found.items()}}


SUSPECTS = {f.__name__: f for f in (
    sigmoid_cancel, sigmoid_cancel_deep, sigmoid_cancel_rows, softplus_cancel, softplus_tail,
    softplus_tail_triton, softplus_overflow, negative_bias, stride, excluded_group, bias_bf16,
    invalid_groups, no_bias_scale, nan_rows)}
SECONDS = 30


def child(names, pipe):
    """Sends (verdict, numbers) of each; ends where the device no longer answers."""
    for name in names:
        try:
            yes, numbers = SUSPECTS[name]()
            torch.cuda.synchronize()
            pipe.send(("CONFIRMED" if yes else "refuted", numbers))
        except Exception as error:
            text = (str(error).splitlines() or [""])[0]
            pipe.send(("not settled", {"error": f"{type(error).__name__}: {text}"}))
            try:
                torch.cuda.synchronize()
            except Exception:
                return


def settle(names):
    """Yields (name, verdict, numbers)."""
    context, names = multiprocessing.get_context("spawn"), list(names)
    while names:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=child, args=(names, theirs))
        process.start()
        theirs.close()
        alive = True
        while names and alive:
            try:
                answer = ours.recv() if ours.poll(SECONDS) else None
                why = f"no answer in {SECONDS} s"
            except EOFError:
                process.join()
                answer, why = None, f"its process ended with status {process.exitcode}"
            alive = answer is not None
            yield (names.pop(0), *(answer or ("not settled", {"error": why})))
            alive = alive and (process.is_alive() or ours.poll())
        process.kill()
        process.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(SUSPECTS))
    parser.add_argument("--json", metavar="F", help="also write all of it there")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in SUSPECTS]
    if unknown:
        parser.error(f"no suspect {unknown[0]}; known: {' '.join(SUSPECTS)}")
    found = vllm_tree.find()
    if found.version is None or not torch.cuda.is_available():
        print(found.reason or "no GPU")
        return 2
    device = torch.cuda.get_device_name()
    print(f"vLLM {found.version}, {device}", flush=True)
    said = []
    for name, verdict, numbers in settle(given.names or SUSPECTS):
        about = SUSPECTS[name].__doc__.strip()
        print(f"{name}: {verdict}: {about}")
        for word, value in numbers.items():
            print(f"    {word}: {value}", flush=True)
        said.append({"name": name, "about": about, "verdict": verdict, "numbers": numbers})
    if given.json:
        with output_file(given.json) as file:
            document = json.dumps({"engine": "vllm", "engine_version": found.version, "device": device,
                                   "torch": torch.__version__, "suspects": said})
            json.dump(json.loads(document, parse_constant=str), file, indent=1)  # JSON has no NaN
    verdicts = {one["verdict"] for one in said}
    return 1 if "CONFIRMED" in verdicts else 3 if "not settled" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
