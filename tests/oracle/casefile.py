"""Case files and config.json, read without the program's code."""
import glob
import json
import os
import re

import numpy as np

from stfile import File, Tensor

# Keys of transformers' configuration classes. A missing key that has no entry in DEFAULTS is an
# error. n_routed_experts and num_local_experts are what the captures' own configs hold.
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
CLASSES = {
    # modeling_glm4_moe.py, modeling_deepseek_v3.py: scores = router_logits.sigmoid(), + bias
    "glm4_moe": ("sigmoid", True), "deepseek_v3": ("sigmoid", True),
    # modeling_qwen3_moe.py: softmax(router_logits, dtype=float)
    "qwen3_moe": ("softmax", False),
}


FIELDS = {"experts": int, "top_k": int, "hidden": int, "score": str, "bias": bool,
          "n_group": int,
          "topk_group": int, "norm_topk_prob": bool, "routed_scaling_factor": float}


class Router:
    """config.json's figures (config None: all of them in the case), then the case's overrides."""

    def __init__(self, config, overrides):
        self.hidden = 0
        if config is not None:
            self._read(config)
        for key, value in overrides.items():
            setattr(self, key, FIELDS[key](value))
        for key in FIELDS:
            getattr(self, key)  # AttributeError names what neither of them says

    def _read(self, config):
        kind = config.get("model_type")
        if kind not in CLASSES:
            raise ValueError(f"the oracle does not know model_type {kind!r}")
        self.score, self.bias = CLASSES[kind]
        self.experts = next(config[k] for k in EXPERTS if k in config)
        self.top_k = config["num_experts_per_tok"]
        self.hidden = config["hidden_size"]
        self.n_group = config.get("n_group", 1)
        self.topk_group = config.get("topk_group", 1)
        self.norm_topk_prob = config["norm_topk_prob"]
        self.routed_scaling_factor = float(config.get("routed_scaling_factor", 1.0))


class Case:
    """name, router, and layers(): (layer, phase, {"hidden", "gate", "bias", "logits"})."""

    def __init__(self, path, capture=None):
        with open(path) as f:
            self.json = json.load(f)
        folder = os.path.dirname(path)
        self.name = self.json.get("name", os.path.basename(path))
        self.phases = self.json.get("phases", ["all"])
        self.from_logits = self.json.get("input", "hidden") == "logits"

        def paths(key):
            value = self.json.get(key, [])
            return [os.path.join(folder, p) for p in ([value] if isinstance(value, str) else value)]

        config = None
        for p in paths("config"):
            with open(p) as f:
                config = json.load(f)
        self._open(config, paths("checkpoint"), [capture] if capture else paths("capture"))

    def _open(self, config, checkpoint, capture):
        self.router = Router(config, self.json.get("router", {}))
        files = []
        for p in checkpoint + capture:
            shards = sorted(glob.glob(os.path.join(p, "*.safetensors")))
            files += shards if os.path.isdir(p) else [p]
        self.files = [File(p) for p in files]
        self.names = {"hidden": "{phase}.model.layers.{layer}.mlp.gate.input",
                      "logits": "{phase}.model.layers.{layer}.mlp.gate.logits",
                      "gate": "model.layers.{layer}.mlp.gate.weight",
                      "bias": "model.layers.{layer}.mlp.gate.e_score_correction_bias"}
        self.names.update(self.json.get("names", {}))

    @classmethod
    def of_files(cls, name, config, checkpoint, capture, phases):
        case = cls.__new__(cls)
        case.json, case.name, case.phases, case.from_logits = {}, name, phases, False
        with open(config) as f:
            case._open(json.load(f), [checkpoint], [capture])
        return case

    def _find(self, what, layer, phase):
        name = self.names[what].replace("{phase}", phase).replace("{layer}", str(layer))
        for f in self.files:
            if name in f:
                return f[name]
        raise KeyError(f"{self.name}: no tensor {name}")

    def layers(self):
        if "inline" in self.json:
            yield from self._inline()
            return
        source = "logits" if self.from_logits else "hidden"
        for phase in self.phases:
            pattern = re.escape(self.names[source].replace("{phase}", phase))
            pattern = pattern.replace(re.escape("{layer}"), r"(\d+)")
            found = {int(m.group(1)) if m.groups() else 0 for f in self.files for n in f.names()
                     for m in [re.fullmatch(pattern, n)] if m}
            for layer in sorted(found):
                tensors = {source: self._find(source, layer, phase)}
                if not self.from_logits:
                    tensors["gate"] = self._find("gate", layer, phase)
                if self.router.bias:
                    tensors["bias"] = self._find("bias", layer, phase)
                yield layer, phase, tensors

    def _inline(self):
        """Decimals in the case itself: read as binary64, rounded to fp32."""
        def fp32(values):
            return Tensor("F32", np.array(values, np.float64).astype(np.float32).view("<u4"))

        for phase in self.phases:
            for layer, given in sorted(self.json["inline"].items(), key=lambda item: int(item[0])):
                tensors = {"logits": fp32(given["logits"])}
                if self.router.bias:
                    tensors["bias"] = fp32(given["bias"])
                yield int(layer), phase, tensors


def capture_case(folder, name):
    """A full capture, which lies beside its router and config."""
    at = os.path.join(folder, name)
    return Case.of_files(name, at + "-config.json", at + "-router.safetensors",
                         at + "-capture.safetensors", ["prefill", "decode"])
