"""What the tests share: the program, cases, and a plain kernel."""
import contextlib
import json
import os
import subprocess
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(ROOT, "tests", "oracle"))
from stfile import File  # noqa: E402

import moeref  # noqa: E402

PROGRAM = os.path.join(os.environ.get("MOEREF_BUILD", os.path.join(ROOT, "build")), "moeref")
FLOATS = {"F32": np.float32, "F16": np.float16, "F64": np.float64}
TIE = moeref.CERTIFICATES.index("tie")
NONFINITE = moeref.CERTIFICATES.index("nonfinite")


class Skipped(Exception):
    """Here something is missing: said, and not failed. pytest skips, too."""


if "pytest" in sys.modules:
    import pytest
    Skipped = pytest.skip.Exception


def need(module):
    try:
        return __import__(module)
    except ImportError:
        raise Skipped(f"{module}: MISSING -> NOT TESTED") from None


def program(*arguments, status=(0, 1)):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in status, done.stderr
    return done.stdout


@contextlib.contextmanager
def refused(*words, error=ValueError):
    """One line, with these words."""
    try:
        yield
    except error as why:
        text = str(why)
        assert all(word in text for word in words), text
        assert error is AssertionError or "\n" not in text, text
        return
    raise AssertionError("not refused: " + " ".join(words))


def array(tensor):
    """A tensor of a file as numpy has it, and the dtype= that it needs."""
    if tensor.dtype == "BF16":
        return tensor.bits, "bf16"
    return (tensor.bits.view(FLOATS[tensor.dtype]) if tensor.dtype in FLOATS
            else tensor.bits), None


class Layers:
    """A case's layers as arguments of route and verify: (layer, phase, {name: array})."""

    def __init__(self, path):
        with open(path) as f:
            self.case = json.load(f)
        folder = os.path.dirname(path)
        paths = self.case.get("checkpoint", []) + self.case.get("capture", [])
        self.files = [File(os.path.join(folder, p)) for p in dict.fromkeys(paths)]
        self.router = (moeref.Router.from_config(os.path.join(folder, self.case["config"]))
                       if "config" in self.case else moeref.Router(**self.case["router"]))
        self.from_logits = self.case.get("input") == "logits"

    def find(self, name):
        return next((f[name] for f in self.files if name in f), None)

    def __iter__(self):
        for phase in self.case.get("phases", ["all"]):
            for layer in range(64):
                made = self.layer(layer, phase)
                if made:
                    yield layer, phase, made

    def layer(self, layer, phase):
        at = f"{phase}.model.layers.{layer}.mlp."
        weights = f"model.layers.{layer}.mlp.gate."
        names = {"bias": weights + "e_score_correction_bias"}
        if self.from_logits:
            names["logits"] = at + "gate.logits"
        else:
            names.update(hidden=at + "gate.input", gate_weight=weights + "weight")
        made = {}
        for name, stored in names.items():
            tensor = self.find(stored)
            if tensor is None or (name == "bias" and not self.router.bias):
                continue
            made[name], dtype = array(tensor)
            if dtype:
                made["dtype"] = dtype
        if "logits" in made:
            made["logits"] = made["logits"][:, :self.router.experts]  # rows may be wider
        return made if "hidden" in made or "logits" in made else None

    def observed(self, layer, phase):
        """The case's own topk_ids and topk_weights."""
        at = f"{phase}.model.layers.{layer}.mlp."
        return tuple(array(self.find(at + name))[0] for name in ("topk_ids", "topk_weights"))


def tokens_of(path, layer, phase):
    """route --tokens F, of one layer: name -> array."""
    file = File(path)
    at = f"{phase}.model.layers.{layer}.mlp."
    return {n[len(at):]: array(file[n])[0] for n in file.names() if n.startswith(at)}


ROUTER = moeref.Router(experts=32, top_k=4, score="sigmoid", bias=True, norm_topk_prob=True,
                       routed_scaling_factor=2.5)


def problem(tokens=64, hidden=96, router=ROUTER, seed=1):
    """hidden, gate, bias of binary32."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((tokens, hidden), np.float32),
            rng.standard_normal((router.experts, hidden), np.float32) * np.float32(hidden**-0.5),
            rng.standard_normal(router.experts, np.float32) * np.float32(0.1))


def kernel(hidden, gate, bias, router=ROUTER):
    """ids and weights as a plain binary32 kernel computes them."""
    scores = 1 / (1 + np.exp(-(hidden @ gate.T)))
    ids = np.argsort(-(scores + bias), axis=1, kind="stable")[:, :router.top_k].astype(np.int32)
    weights = np.take_along_axis(scores, ids, 1)
    weights *= np.float32(router.routed_scaling_factor) / weights.sum(1, keepdims=True)
    return ids, weights
