"""transformers: the router modules of its models, with a case's gate weight and bias put in. One kernel
for each text: models whose router has the same forward, word for word, stand in TWINS. A model runs
in the type of its weights, so a router that multiplies in that type has two kernels, NAME for bf16 and
NAME_fp32. torch.topk promises no tie rule; most of these ask for sorted=False.
"""
import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from types import SimpleNamespace

from engine import Found, Kernel, Unsupported

NAME = "transformers"
VERSIONS = ("5.17.0",)

TWINS = {"deepseek_v3": ("axk1", "deepseek_v32", "dots1", "exaone_moe", "glm4_moe", "glm4_moe_lite",
                         "glm4v_moe", "glm5_next", "glm_moe_dsa", "hy_v4", "kimi_linear",
                         "mimo_v2_flash", "nemotron_h", "solar_open"),
         "qwen3_moe": ("flex_olmo", "mellum", "olmoe", "qwen2_moe", "qwen3_next"),
         "mixtral": ("minimax",), "minimax_m3_vl": ("step3p7",)}


@dataclass(frozen=True)
class Row:
    """One router class and what it means in our words."""
    model: str
    cls: str
    score: str
    arith: str                 # of a model in bf16
    upcasts: bool = False      # multiplies in fp32 whatever the types are
    bias: str = ""             # "": none; "buffer", "argument", or the path of a parameter
    gate: str = "weight"       # the parameter's path
    order: tuple = ("logits", "weights", "ids")
    by_logit: bool = False
    gate_bias: bool = False
    groups: str = ""           # "": none; else how a group is scored
    norm: bool | None = None   # None: as the config says
    scale: bool = False        # multiplies by routed_scaling_factor
    fp32_only: bool = False    # in bf16 it rounds where no arithmetic line says so


NOAUX = {"score": "sigmoid", "arith": "fp32", "upcasts": True, "bias": "buffer", "groups": "top2-sum",
         "scale": True}
ROWS = (
    Row("deepseek_v3", "DeepseekV3TopkRouter", **NOAUX),
    Row("glm4_moe", "Glm4MoeTopkRouter", **NOAUX),
    Row("axk2", "AXK2TopkRouter", **NOAUX),
    Row("deepseek_v2", "DeepseekV2TopkRouter", "softmax", "fp32", upcasts=True, groups="max", norm=False,
        scale=True),
    Row("deepseek_v4", "DeepseekV4TopKRouter", "sqrtsoftplus", "", bias="buffer", norm=True, scale=True,
        fp32_only=True),
    Row("qwen3_moe", "Qwen3MoeTopKRouter", "softmax", "bf16-logits+bf16-weights"),
    Row("mixtral", "MixtralTopKRouter", "softmax", "bf16-logits", norm=True),
    Row("gpt_oss", "GptOssTopKRouter", "softmax", "bf16-logits+bf16-weights", by_logit=True,
        gate_bias=True),
    Row("granitemoe", "GraniteMoeTopKRouter", "softmax", "bf16-logits+bf16-weights", by_logit=True,
        order=("ids", "weights", "logits")),
    Row("ernie4_5_moe", "Ernie4_5_MoeTopKRouter", "softmax", "bf16-weights", upcasts=True,
        bias="moe_statics.e_score_correction_bias", norm=True),
    Row("hunyuan_v1_moe", "HunYuanMoEV1Gate", "softmax", "fp32", upcasts=True, gate="wg.weight",
        norm=True),
    Row("longcat_flash", "LongcatFlashTopkRouter", "softmax", "fp32", upcasts=True, bias="buffer",
        gate="classifier.weight", norm=False, scale=True, order=("weights", "ids")),
    Row("minimax_m2", "MiniMaxM2TopKRouter", "sigmoid", "bf16-logits", bias="argument", norm=True),
    Row("minimax_m3_vl", "MiniMaxM3VLTopKRouter", "sigmoid", "bf16-logits", bias="buffer", norm=True),
    Row("hy_v3", "HYV3TopKRouter", "sigmoid", "fp32", upcasts=True, bias="argument", norm=True,
        scale=True),
    Row("afmoe", "AfmoeTokenChoiceRouter", "sigmoid", "bf16-logits", bias="argument",
        gate="gate.weight", norm=True, scale=True),
    Row("laguna", "LagunaTopKRouter", "sigmoid", "bf16-logits+bf16-weights", bias="buffer", norm=True),
    Row("mistral4", "Mistral4TopkRouter", "softmax", "", groups="top2-sum", scale=True, fp32_only=True),
)


def find():
    spec = importlib.util.find_spec("transformers")
    if spec is None:
        return Found(None, "transformers is not installed")
    return Found(importlib.metadata.version("transformers"), where=spec.submodule_search_locations[0])


def config_of(r):
    """All that the classes read; most models have their own word for the same figure."""
    return SimpleNamespace(
        hidden_size=r.hidden, num_experts=r.experts, num_local_experts=r.experts,
        n_routed_experts=r.experts, zero_expert_num=0, router_bias=False,
        num_experts_per_tok=r.top_k, moe_topk=r.top_k, norm_topk_prob=r.norm_topk_prob,
        n_group=r.n_group, topk_group=r.topk_group, scoring_func="sqrtsoftplus",
        topk_method="group_limited_greedy" if r.n_group > 1 else "greedy",
        routed_scaling_factor=r.routed_scaling_factor, router_scaling_factor=r.routed_scaling_factor,
        route_scale=r.routed_scaling_factor, moe_norm_min=1e-12, moe_router_logit_softcapping=0.0)


def put(module, path, tensor, torch):
    """Replaces a parameter, or a buffer, by the case's own memory."""
    *way, last = path.split(".")
    for step in way:
        module = getattr(module, step)
    old = getattr(module, last)
    tensor = tensor.view(old.shape)
    is_parameter = last in module._parameters
    setattr(module, last, torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor)


class Module(Kernel):
    devices = ("cuda", "cpu")

    def __init__(self, row, fp32):
        self.row, self.fp32 = row, fp32
        self.name = row.model + ("_fp32" if fp32 else "")
        twins = TWINS.get(row.model)
        self.about = f"models/{row.model}/modeling_{row.model}.py: {row.cls}" + (
            ", the model in fp32" if fp32 else "") + (f"; the same: {', '.join(twins)}" if twins else "")
        self.gives = tuple(x for x in ("ids", "weights", "logits") if x in row.order)
        if fp32:
            self.hidden_types = ("fp32",)
        elif row.upcasts and row.arith == "fp32":
            self.hidden_types = ("bf16", "fp16", "fp32")

    def arithmetic(self, router, rows):
        return "fp32" if self.fp32 else self.row.arith

    def refuses(self, r, rows):
        w = self.row
        if r.score != w.score or r.rank_by_logit != w.by_logit:
            return f"its scores are {w.score}, " + ("of the selected logits" if w.by_logit
                                                    else "of all logits")
        if r.bias and not w.bias:
            return "it has no correction bias"
        if r.gate_bias != w.gate_bias:
            return "its gate has a bias" if w.gate_bias else "its gate has no bias"
        if r.n_group > 1 and r.group_score != w.groups:
            return f"groups scored by {w.groups}" if w.groups else "it has no groups"
        if w.norm is not None and not r.rank_by_logit and r.norm_topk_prob != w.norm:
            return "it always normalises" if w.norm else "it never normalises"
        if not w.scale and r.routed_scaling_factor != 1:
            return "it does not scale"
        return None

    def module(self, p, torch):
        path = f"transformers.models.{self.row.model}.modeling_{self.row.model}"
        config = config_of(p.router)
        if self.row.model == "axk2" and p.router.n_group == 1:
            config.n_group = None
        with torch.device("cpu"):
            module = getattr(importlib.import_module(path), self.row.cls)(config)
        module.eval()
        # Whatever is not put in by name (zero biases) goes to the device as it is.
        module.to(p.device)
        # The router's own class keeps its gate in fp32 there.
        wide = self.fp32 or self.row.model == "hunyuan_v1_moe"
        put(module, self.row.gate, p.gate.float() if wide else p.gate, torch)
        if p.gate_bias is not None:
            put(module, "bias", p.gate_bias.to(p.gate.dtype) if not wide else p.gate_bias, torch)
        if p.bias is not None and self.row.bias != "argument":
            put(module, "e_score_correction_bias" if self.row.bias == "buffer" else self.row.bias,
                p.bias, torch)
        return module

    def prepare(self, p):
        import torch
        if not self.row.upcasts and not self.fp32:
            if p.gate.dtype != p.hidden.dtype:
                raise Unsupported(f"a model in one type: the gate weight is {str(p.gate.dtype)[6:]}")
            if p.gate_bias is not None and not torch.equal(p.gate_bias.bfloat16().float(), p.gate_bias):
                raise Unsupported("a gate's bias that is not of bf16, as the model is")
        module = self.module(p, torch)
        hidden = p.hidden.unsqueeze(0) if self.row.model == "afmoe" else p.hidden
        extra = ()
        if self.row.bias == "argument":
            extra = (p.bias if p.bias is not None else
                     torch.zeros(p.router.experts, device=p.device),)

        def launch():
            return dict(zip(self.row.order, module(hidden, *extra)))
        return launch


def kernels(found):
    out = []
    for row in ROWS:
        if not row.fp32_only:
            out.append(Module(row, False))
        if not row.upcasts:
            out.append(Module(row, True))
    return out
