"""tools/capture/hooks.py without the servers: STAND-INS that have the shape of SGLang 0.5.23's and
vLLM 0.33.0's modules (names, attributes, order of arguments), and route by plain torch. What they
prove is the hooks' code; that the engines have this shape is read from their sources, not tested."""
import os
import types
from collections import namedtuple

import torch

import hooks
import models
from support import tensors

LAYERS, HIDDEN, ROWS = (1, 2), 96, 20


def route(gate, bias, k, hidden, scale):
    """fp32 sigmoid with a correction bias, without groups, as the model's config says."""
    logits = hidden.float() @ gate.float().T
    scores = logits.sigmoid()
    ids = (scores + bias).topk(k, -1).indices
    weights = scores.gather(1, ids)
    return logits, weights / weights.sum(-1, keepdim=True) * scale, ids.to(torch.int32)


# Of SGLang: TopK's output, the config that it holds, attention that is given the batch.
StandardTopKOutput = namedtuple("StandardTopKOutput", "topk_weights topk_ids router_logits")
BypassedTopKOutput = namedtuple("BypassedTopKOutput", "hidden_states raw_router_logits")


class TopK(torch.nn.Module):
    def __init__(self, layer, gate, bias):
        super().__init__()
        self.layer_id, self.gate_weight, self.bias = layer, gate, bias
        # One slot of a fused shared expert behind the routed ones.
        self.topk_config = types.SimpleNamespace(
            top_k=5, num_shared_topk_slots=1, apply_routed_scaling_factor_on_output=False,
            routed_scaling_factor=2.5)

    def forward(self, hidden_states, router_logits):
        _, weights, ids = route(self.gate_weight, self.bias, 4, hidden_states, 1.0)
        n = len(ids)
        return StandardTopKOutput(torch.cat([weights, torch.ones(n, 1)], 1), torch.cat(
            [ids, torch.full((n, 1), 32, dtype=torch.int32)], 1), router_logits)


class RadixAttention(torch.nn.Module):
    def forward(self, q, k, v, forward_batch, save_kv_cache=True):
        return q


class SGLangModel(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.attn = RadixAttention()
        self.topk = torch.nn.ModuleList(TopK(n, *weights[n]) for n in LAYERS)

    def forward(self, hidden, mode):
        batch = types.SimpleNamespace(forward_mode=types.SimpleNamespace(name=mode))
        for t in self.topk:
            self.attn(hidden, None, None, batch)
            logits, _, _ = route(t.gate_weight, t.bias, 4, hidden, 1.0)
            t(hidden, logits)


# Of vLLM: the router's base class, a runner that holds router and layer, the forward's context.
class FusedMoERouter:
    eplb_state, top_k, global_num_experts, routed_scaling_factor = None, 4, 32, 2.5

    def __init__(self, gate, bias):
        self.gate_weight, self.bias = gate, bias

    def select_experts(self, hidden_states, router_logits, topk_indices_dtype=None, *,
                       input_ids=None):
        _, weights, ids = route(self.gate_weight, self.bias, 4, hidden_states, 2.5)
        return weights, ids


class MoERunner(torch.nn.Module):
    def __init__(self, layer, router):
        super().__init__()
        self.layer_id, self.router = layer, router


def hidden(n, seed):
    return torch.randn(n, HIDDEN, generator=torch.Generator().manual_seed(seed)).bfloat16()


def saved(folder):
    """A checkpoint, and its routers: layer -> (weight, bias)."""
    model = models.build("glm4_moe")
    path = os.path.join(folder, "checkpoint")
    model.save_pretrained(path, max_shard_size="200KB")
    gates = {n: model.model.layers[n].mlp.gate for n in LAYERS}
    return path, {n: (g.weight.detach(), g.e_score_correction_bias) for n, g in gates.items()}


def check_sglang(checks, folder, path, weights):
    out = os.path.join(folder, "sglang")
    model = SGLangModel(weights)
    config = {"out": out, "model": path, "max_rows": ROWS}
    hook = hooks.sglang(config)
    for m in model.modules():
        if isinstance(m, (TopK, RadixAttention)):
            m.register_forward_hook(hook)
    checks.that(hooks.sglang(config) is None, "sglang: a second capture to the same folder")
    model(hidden(12, 1), "EXTEND")
    model(hidden(12, 2), "EXTEND")
    for step in range(6):
        model(hidden(4, 10 + step), "DECODE")
        checks.that(os.path.exists(out) == (step == 5), f"sglang: step {step}")
    checks.good(os.path.join(out, "sglang.json"), "sglang stand-in", 2 * 2 * ROWS)
    got = tensors(os.path.join(out, "capture.safetensors"))
    checks.that(got["prefill.model.layers.1.mlp.topk_ids"][1] == [ROWS, 4], "sglang: the shared slot")
    first = torch.cat([hidden(12, 1), hidden(12, 2)])[:ROWS].view(torch.uint8).numpy().tobytes()
    checks.that(got["prefill.model.layers.2.mlp.gate.input"][2] == first, "sglang: rows")
    model(hidden(4, 99), "DECODE")  # the hook is off and harmless

    bypass = os.path.join(folder, "bypass")
    hook = hooks.sglang({**config, "out": bypass})
    hook(model.topk[0], (hidden(2, 1), torch.zeros(2, 32)), BypassedTopKOutput(None, None))
    hook(model.topk[0], (hidden(2, 1), torch.zeros(2, 32)), BypassedTopKOutput(None, None))
    checks.that(not os.path.exists(bypass), "sglang: bypassed routing gave a capture")


def check_vllm(checks, folder, path, weights):
    out = os.path.join(folder, "vllm")
    runners = torch.nn.ModuleList(MoERunner(n, FusedMoERouter(*weights[n])) for n in LAYERS)
    worker = types.SimpleNamespace(model_runner=types.SimpleNamespace(model=runners))
    context = types.SimpleNamespace(attn_metadata=None)
    c = hooks.VLLM({"out": out, "model": path, "max_rows": ROWS}, worker, lambda: context)
    undo = hooks.wrap(FusedMoERouter, c)

    def forward(x, starts):
        context.attn_metadata = starts and {
            "layer": types.SimpleNamespace(query_start_loc=torch.tensor(starts))}
        for r in runners:
            logits, _, _ = route(r.router.gate_weight, r.router.bias, 4, x, 1.0)
            r.router.select_experts(hidden_states=x, router_logits=logits)
    forward(hidden(9, 5), None)                 # a profile run
    forward(hidden(16, 6), [0, 1, 2, 9, 14])    # two decode, two are prefilled, two rows of padding
    FusedMoERouter(*weights[1]).select_experts(hidden(2, 1), torch.zeros(2, 32))  # of a draft model
    checks.that(not os.path.exists(out), "vllm: there before the end")
    worker.moeref_capture = c
    hooks.Worker.destroy_worker_extension(worker)
    undo()
    checks.good(os.path.join(out, "vllm.json"), "vllm stand-in", 2 * 14)
    got = tensors(os.path.join(out, "capture.safetensors"))
    x = hidden(16, 6).view(torch.uint8).numpy()
    for phase, rows in (("decode", x[0:2]), ("prefill", x[2:14])):
        checks.that(got[phase + ".model.layers.1.mlp.gate.input"][2] == rows.tobytes(),
                    f"vllm: {phase} rows")


def check_bad(checks, folder, path):
    out = os.path.join(folder, "bad")
    for config in ({}, {"out": out}, {"out": out, "model": folder}, {"out": out, "model": path, "x": 1},
                   {"out": out, "model": path, "max_rows": 0},
                   {"out": out, "model": path, "phases": ["a.b"]}):
        checks.that(hooks.sglang(config) is None, f"hooks: {config} is taken")
    os.environ["MOEREF_CAPTURE"] = "{"
    hooks.Worker().init_worker_extension()
    checks.that(not os.path.exists(out) and not os.path.exists(out + ".part"),
                "hooks: something is left")


def check(checks, device, folder):
    path, weights = saved(folder)
    check_sglang(checks, folder, path, weights)
    check_vllm(checks, folder, path, weights)
    check_bad(checks, folder, path)
    print("hooks: checked with stand-ins, not with SGLang or vLLM", flush=True)
