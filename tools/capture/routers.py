"""The routers of transformers' MoE models: what each class returns, where its tensors are, what it
means. Read from modeling_MODEL.py of transformers 5.17; classes that the table does not have are
refused by name, since a wrong guess would make a wrong case."""
from dataclasses import dataclass, field

from layout import CaptureError


@dataclass(frozen=True)
class Family:
    returns: str           # order of what forward returns, of: logits, weights, ids, scores
    figures: callable      # (module, parent) -> "router" of a case file, less hidden and experts
    weight: str = "weight"
    bias: str = ""         # correction bias, from the router; "^." goes to the module around it
    gate_bias: str = ""
    words: tuple = ()      # rounds to the hidden states' type, and then widens: logits
    outside: str = ""      # a factor of moeref's router that this class leaves to its caller


def _sigmoid(m, norm=True, scale=1.0, groups=1, kept=1):
    return {"score": "sigmoid", "bias": True, "n_group": groups, "topk_group": kept,
            "norm_topk_prob": norm, "routed_scaling_factor": scale}


def _softmax(norm, bias=False, **more):
    return {"score": "softmax", "bias": bias, "n_group": 1, "topk_group": 1,
            "norm_topk_prob": norm, "routed_scaling_factor": 1.0, **more}


def _deepseek_v3(m, parent):
    return {**_sigmoid(m, bool(m.norm_topk_prob), float(m.routed_scaling_factor), m.num_group,
                       m.topk_group), "group_score": "top2_sum"}


def _deepseek_v2(m, parent):
    if m.topk_method not in ("greedy", "group_limited_greedy"):
        raise CaptureError(f"{type(m).__name__}: topk_method {m.topk_method!r} is not known")
    grouped = m.topk_method == "group_limited_greedy"
    return {**_softmax(False), "n_group": m.num_group if grouped else 1,
            "topk_group": m.topk_group if grouped else 1, "group_score": "max",
            "routed_scaling_factor": float(m.routed_scaling_factor)}


LWI = "logits weights ids"
DEEPSEEK_V3 = Family(LWI, _deepseek_v3, bias="e_score_correction_bias")
QWEN = Family(LWI, lambda m, p: _softmax(bool(m.norm_topk_prob)))
ALWAYS = Family(LWI, lambda m, p: _softmax(True))
LOGIT = {"selection": "logit"}
# GraniteMoe: bf16 logits, widened at once.
GRANITE = Family("ids weights logits", lambda m, p: _softmax(True, **LOGIT), words=("logits",))
# MiniMax-M3, Step-3.7: the block multiplies the experts' output, not the weights.
M3 = Family(LWI, lambda m, p: _sigmoid(m), bias="e_score_correction_bias",
            outside="routed_scaling_factor")

FAMILIES = {
    **dict.fromkeys(("DeepseekV3TopkRouter", "DeepseekV32TopkRouter", "Dots1TopkRouter",
                     "ExaoneMoeTopkRouter", "Glm4MoeTopkRouter", "Glm4MoeLiteTopkRouter",
                     "Glm4vMoeTextTopkRouter", "Glm5NextTextTopkRouter", "GlmMoeDsaTopkRouter",
                     "HYV4TopkRouter", "KimiLinearTopkRouter", "MiMoV2FlashTopkRouter",
                     "NemotronHTopkRouter", "SolarOpenTopkRouter", "AXK1TopkRouter"), DEEPSEEK_V3),
    **dict.fromkeys(("FlexOlmoTopKRouter", "MellumTopKRouter", "OlmoeTopKRouter",
                     "Qwen2MoeTopKRouter", "Qwen3MoeTopKRouter", "Qwen3NextTopKRouter",
                     "Qwen3OmniMoeThinkerTextTopKRouter", "Qwen4ExpTextTopKRouter"), QWEN),
    **dict.fromkeys(("MixtralTopKRouter", "MiniMaxTopKRouter", "Qwen3_5MoeTopKRouter",
                     "Qwen3OmniMoeTextTopKRouter", "Qwen3VLMoeTextTopKRouter"), ALWAYS),
    "GptOssTopKRouter": Family(LWI, lambda m, p: _softmax(True, **LOGIT, gate_bias=True),
                               gate_bias="bias"),
    "Llama4Router": Family("scores logits", lambda m, p: {
        **_softmax(False, **LOGIT), "score": "sigmoid"}),
    **dict.fromkeys(("DeepseekV2TopkRouter", "DeepseekOcr2TextTopkRouter"),
                    Family(LWI, _deepseek_v2)),
    "Ernie4_5_MoeTopKRouter": Family(LWI, lambda m, p: _softmax(True, bias=True),
                                     bias="moe_statics.e_score_correction_bias"),
    "MiniMaxM2TopKRouter": Family(LWI, lambda m, p: _sigmoid(m), bias="^.e_score_correction_bias"),
    **dict.fromkeys(("MiniMaxM3VLTopKRouter", "Step3p7TopKRouter"), M3),
    "HYV3TopKRouter": Family(LWI, lambda m, p: _sigmoid(m, scale=float(m.router_scaling_factor)),
                             bias="^.e_score_correction_bias"),
    "AfmoeTokenChoiceRouter": Family(LWI, lambda m, p: _sigmoid(m, scale=float(m.route_scale)),
                                     weight="gate.weight", bias="^.expert_bias",
                                     words=("logits",)),
    **dict.fromkeys(("GraniteMoeTopKRouter", "GraniteMoeHybridTopKRouter",
                     "GraniteMoeSharedTopKRouter"), GRANITE),
    "GraniteMoeSWATopKRouter": Family(LWI, GRANITE.figures, words=("logits",)),
    "HunYuanMoEV1Gate": Family(LWI, lambda m, p: _softmax(True), weight="wg.weight"),
}

# Known, and why not: what they compute is no router that moeref can say.
KNOWN = {
    "Linear": "is only the logits: the block around it routes, and its choice is not seen",
    "DbrxRouter": "gives only logits: the block around it routes, and its choice is not seen",
    "DeepseekV4TopKRouter": "adds up and divides bf16 scores, a rounding that moeref has no words for",
    "DeepseekV4HashRouter": "chooses by token id; its layers lie beside DeepseekV4TopKRouter",
    "Gemma4TextRouter": "norms its input itself and scales weights by expert (per_expert_scale)",
    "DiffusionGemmaTextRouter": "norms its input itself and scales weights by expert",
    "PhimoeTopKRouter": "is sparsemixer, whose two weights are not a softmax over all",
    "LongcatFlashTopkRouter": "gives no logits, and has experts that compute nothing",
    "Lfm2MoeTopKRouter": "adds 1e-6 to the sum that it divides by",
    "Mistral4TopkRouter": "takes a softmax and sums in the hidden states' type",
    "OpenAIPrivacyFilterTopKRouter": "divides its weights by top_k",
    "InklingTopkRouter": "normalises over shared experts, too",
    "ZayaRouter": "is a network of several layers",
    "SwitchTransformersTop1Router": "drops tokens beyond an expert's capacity",
    "NllbMoeTop2Router": "drops tokens beyond an expert's capacity",
}

# Types whose config.json moeref reads itself, which tests/capture holds against these figures; for
# the others the case file carries the figures of the modules.
READ_BY_MOEREF = ("glm4_moe", "deepseek_v3", "deepseek_v2", "qwen3_moe", "qwen3_next", "mixtral",
                  "gpt_oss", "llama4_text", "minimax_m2", "minimax_m3_vl_text", "qwen3_5_moe_text",
                  "glm_moe_dsa")


@dataclass
class Router:
    """One router of a running model."""
    name: str      # of the module
    layer: int
    module: object
    parent: object
    family: Family
    figures: dict = field(default_factory=dict)


def find(model, layers=None):
    """The routers of the model (layers: a set, or all), in order of layers: children called gate or
    router of a module that has experts, and whatever the table knows."""
    modules = dict(model.named_modules())
    found, last = [], -1
    for name, m in modules.items():
        parent = modules.get(name.rpartition(".")[0])
        kind = type(m).__name__
        beside = name.rpartition(".")[2] in ("gate", "router") and hasattr(parent, "experts")
        if not beside and kind not in FAMILIES:
            continue
        numbers = [int(s) for s in name.split(".") if s.isdigit()]
        if len(numbers) == 1 and layers is not None and numbers[0] not in layers:
            continue
        if kind not in FAMILIES:
            why = KNOWN.get(kind, "is not in the table; known are " + ", ".join(sorted(FAMILIES)))
            raise CaptureError(f"{name}: {kind} {why}")
        if len(numbers) != 1:
            raise CaptureError(f"{name}: which layer? expected one number in the name")
        found.append(Router(name, numbers[0], m, parent, FAMILIES[kind]))
    if not found:
        raise CaptureError(f"{type(model).__name__}: no router in it"
                           + (": is it a MoE model?" if layers is None else " at these layers"))
    absent = sorted((layers or set()) - {r.layer for r in found})
    if absent:
        raise CaptureError(f"{type(model).__name__}: layer {absent[0]} has no router")
    found.sort(key=lambda r: r.layer)
    for r in found:
        if r.layer == last:
            raise CaptureError(f"{r.name}: layer {r.layer} has two routers")
        last = r.layer
        w = tensor(r, r.family.weight)
        if w.dim() != 2:
            raise CaptureError(f"{r.name}: {r.family.weight} of shape {list(w.shape)}, expected "
                               "[experts, hidden] (is the gate quantised?)")
        r.figures = {"experts": w.shape[0], "top_k": r.module.top_k, "hidden": w.shape[1],
                     **r.family.figures(r.module, r.parent)}
    if any(r.figures != found[0].figures for r in found):
        raise CaptureError("layers have different routers, and a case has one: take --layers")
    return found


def tensor(router, path):
    at = router.module
    if path.startswith("^."):
        at, path = router.parent, path[2:]
    for part in path.split("."):
        at = getattr(at, part)
    return at


def tensor_name(router, path):
    """As the model's state_dict has it."""
    if path.startswith("^."):
        return router.name.rpartition(".")[0] + path[1:]
    return router.name + "." + path


def outputs(router, given):
    """(logits, ids, weights) of what forward returned."""
    order = router.family.returns.split()
    if not isinstance(given, tuple) or len(given) != len(order):
        raise CaptureError(f"{router.name}: {type(router.module).__name__} returned "
                           f"{type(given).__name__}, expected ({', '.join(order)})")
    got = dict(zip(order, given))
    if "scores" in got:
        # Zero for all experts that were not chosen (Llama 4): ids are where it is not.
        weights, ids = got["scores"].topk(router.module.top_k, dim=-1)
        if not bool((weights > 0).all()) or \
                bool(((got["scores"] > 0).sum(-1) != router.module.top_k).any()):
            raise CaptureError(f"{router.name}: a chosen expert has score 0: which, is not seen")
        got["ids"], got["weights"] = ids, weights
    return got["logits"], got["ids"], got["weights"]
