"""Exported cases: NAME.json and NAME.safetensors, as `moeref export` writes them. Any other case is
exported first. Reading the JSON needs no torch; the tensors do.
"""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from engine import Router

TYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16", "I64": "int64",
         "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8"}
INPUT = re.compile(r"(.+)\.model\.layers\.(\d+)\.mlp\.gate\.(input|logits)$")
# Keys of a case that an exported one has no use for: it holds all that they stand for.
FOREIGN = ("config", "generate", "inline", "names")


class BadCase(Exception):
    """One line: what is wrong with the file."""


class Safetensors:
    """Format: huggingface/safetensors README, "Format": u64 header length, JSON header, data."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as f:
                size = int.from_bytes(f.read(8), "little")
                if size > 100 << 20:
                    raise ValueError(f"a header of {size} bytes")
                self.header = json.loads(f.read(size))
            self.base = 8 + size
            self.metadata = self.header.pop("__metadata__", {})
        except (OSError, ValueError) as e:
            raise BadCase(f"{path}: {e}") from None

    def __contains__(self, name):
        return name in self.header

    def dtype(self, name):
        return self.header[name]["dtype"]

    def shape(self, name):
        return self.header[name]["shape"]

    def tensor(self, name):
        import torch
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        if entry["dtype"] not in TYPES:
            raise BadCase(f"{self.path}: {name}: no use for a tensor of {entry['dtype']}")
        with open(self.path, "rb") as f:
            f.seek(self.base + begin)
            raw = bytearray(f.read(end - begin))
        if len(raw) != end - begin:
            raise BadCase(f"{self.path}: {name}: truncated")
        dtype = getattr(torch, TYPES[entry["dtype"]])
        if not raw:
            return torch.empty(entry["shape"], dtype=dtype)
        return torch.frombuffer(raw, dtype=dtype).view(entry["shape"])


def router_of(r, hidden):
    return Router(experts=r["experts"], top_k=r["top_k"], hidden=r.get("hidden", hidden),
                  score=r["score"], rank_by_logit=r.get("selection", "score") == "logit",
                  bias=r["bias"], gate_bias=r.get("gate_bias", False), n_group=r["n_group"],
                  topk_group=r["topk_group"],
                  group_score=r.get("group_score", "top2_sum").replace("_", "-"),
                  norm_topk_prob=r["norm_topk_prob"],
                  routed_scaling_factor=float(r["routed_scaling_factor"]))


class Case:
    """.name, .input ("hidden" or "logits"), .router, .layers [(phase, layer)], .tokens[(phase, layer)]."""

    def __init__(self, path):
        self.path = Path(path)
        document = read_json(self.path)
        for key in FOREIGN:
            if key in document:
                raise BadCase(f"{path}: has \"{key}\": no exported case")
        try:
            self.name, self.input = document["name"], document["input"]
            self.stride = document.get("row_stride", 0)
            paths = {*document["capture"], *document.get("checkpoint", [])}
            self.files = [Safetensors(self.path.parent / p) for p in sorted(paths)]
            if document["router"].get("hash_layers"):
                raise BadCase(f"{path}: chooses experts by token id in some layers")
            self.router = router_of(document["router"], 0)
            order = document.get("phases", ["all"])
        except (KeyError, TypeError) as e:
            raise BadCase(f"{path}: key {e} is missing or of another type") from None
        self.find_layers(order)

    def find_layers(self, order):
        what = {"hidden": "input", "logits": "logits"}[self.input]
        found = [m for f in self.files for m in map(INPUT.match, f.header) if m and m[3] == what]
        self.tokens = {(m[1], int(m[2])): self.shape(m[0])[0] for m in found}
        self.layers = sorted((k for k in self.tokens if k[0] in order),
                             key=lambda k: (order.index(k[0]), k[1]))
        if not self.layers:
            raise BadCase(f"{self.path}: no layer has its {what}")

    def file_of(self, name):
        for f in self.files:
            if name in f:
                return f
        return None

    def shape(self, name):
        return self.file_of(name).shape(name)

    def get(self, name):
        f = self.file_of(name)
        return None if f is None else f.tensor(name)

    def inputs(self, phase, layer):
        """{hidden, gate, bias, gate_bias, logits}: CPU tensors in stored types, None where absent."""
        at, model = f"{phase}.model.layers.{layer}.mlp.gate.", f"model.layers.{layer}.mlp.gate."
        hidden = self.input == "hidden"
        found = {"hidden": self.get(at + "input") if hidden else None,
                 "gate": self.get(model + "weight") if hidden else None,
                 "gate_bias": self.get(model + "bias") if hidden and self.router.gate_bias else None,
                 "bias": self.get(model + "e_score_correction_bias") if self.router.bias else None,
                 "logits": None if hidden else self.get(at + "logits")}
        if self.router.bias and found["bias"] is None:
            raise BadCase(f"{self.path}: layer {layer}: the router has a bias, and it is not there")
        if hidden and found["gate"] is None:
            raise BadCase(f"{self.path}: layer {layer}: {model}weight is not there")
        return found


def read_json(path):
    try:
        document = json.loads(Path(path).read_text())
    except (OSError, ValueError) as e:
        raise BadCase(f"{path}: {e}") from None
    if not isinstance(document, dict) or document.get("moeref_case") != 1:
        raise BadCase(f"{path}: \"moeref_case\": expected 1, found {document.get('moeref_case')}"
                      if isinstance(document, dict) else f"{path}: no JSON object")
    return document


def binary():
    """$MOEREF, else build/moeref of this tree, else moeref on the path."""
    here = Path(__file__).resolve().parents[2] / "build" / "moeref"
    found = os.environ.get("MOEREF") or (str(here) if here.exists() else shutil.which("moeref"))
    if not found:
        raise BadCase(f"no moeref to export cases with: expected {here}, or $MOEREF")
    return found


def export(path, folder, options):
    """The exported twin of a case. options: what else `moeref export` is told, as --logits bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    ran = subprocess.run([binary(), "export", str(path), "-o", str(folder), *options],
                         capture_output=True, text=True)
    if ran.returncode:
        raise BadCase(f"moeref export {path}: {(ran.stderr.strip().splitlines() or ['?'])[-1]}")


def is_exported(path):
    document = read_json(path)
    return not any(k in document for k in FOREIGN) and (
        document.get("input") == "logits" or "checkpoint" in document)


class Exported:
    """One case as it was named on the command line, and the logits cases made from it."""

    def __init__(self, path, folder, options):
        self.given, self.folder, self.options = Path(path), Path(folder), options
        self.made = set()  # types whose logits were made here: DIR may hold another seed's
        document = read_json(path)
        if is_exported(path) and not options:
            self.main = Case(path)
        else:
            export(path, self.folder, options)
            self.main = Case(self.folder / (document["name"] + ".json"))

    def for_kernel(self, takes, types):
        """The cases that a kernel runs on: [(name, path)]."""
        if takes == "hidden" or self.main.input == "logits":
            return [(self.main.name, self.main.path)]
        return [(f"{self.main.name}.{t}-logits", self.logits(t))
                for t in (types if takes == "logits" else ("fp32",))]

    def logits(self, kind):
        """Exact logits, rounded once."""
        name = f"{self.main.name}.{kind}-logits.json"
        beside = self.given.parent / name
        if self.main.path == self.given and beside.exists():
            return beside
        if kind not in self.made:
            export(self.given, self.folder, [*self.options, "--logits", kind])
            self.made.add(kind)
        return self.folder / name
