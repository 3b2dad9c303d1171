"""Captures of running models: what is saved, and that moeref finds no fault in it."""
import json
import os
import tempfile
import warnings

import torch

import models
import routers
from capture import capture
from support import generate, prompt, tensors

SEQUENCES, LENGTH, STEPS = 2, 48, 6
FP32 = ("glm4_moe", "deepseek_v3", "qwen3_moe", "mixtral", "gpt_oss", "llama4")


def check_files(checks, what, folder, model, found):
    got = tensors(os.path.join(folder, "capture.safetensors"))
    rows = {"prefill": SEQUENCES * LENGTH, "decode": SEQUENCES * STEPS}
    names = set()
    for r in found:
        for phase, n in rows.items():
            stem = f"{phase}.model.layers.{r.layer}.mlp."
            wide = {"gate.input": r.figures["hidden"], "gate.logits": r.figures["experts"],
                    "topk_ids": r.figures["top_k"], "topk_weights": r.figures["top_k"]}
            for last, width in wide.items():
                names.add(stem + last)
                checks.that(got.get(stem + last, (0, 0))[1] == [n, width],
                            f"{what}: {stem}{last}: expected [{n}, {width}]")
    checks.that(set(got) == names, f"{what}: tensors {sorted(set(got) ^ names)[:3]}")
    ids = torch.frombuffer(bytearray(got[f"prefill.model.layers.{found[0].layer}.mlp.topk_ids"][2]),
                           dtype=torch.int32)
    checks.that(len(ids.unique()) >= found[0].figures["experts"] / 2,
                f"{what}: routing is degenerate: {len(ids.unique())} experts are used")
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        theirs = tensors(os.path.join(saved, "model.safetensors"))
    ours = tensors(os.path.join(folder, "router.safetensors"))
    for name, (dtype, _, data) in ours.items():
        checks.that(name in theirs and theirs[name][::2] == (dtype, data),
                    f"{what}: {name} is not what transformers saves")


def check_config(checks, what, folder, router):
    """What moeref reads out of config.json is what the modules hold."""
    _, said = checks.json("router", os.path.join(folder, "config.json"))
    said = said["router"] if said else {}
    for key, value in router.figures.items():
        if key == "group_score" and router.figures["n_group"] == 1:
            continue
        if key == router.family.outside:
            continue
        checks.that(said.get(key) == value,
                    f"{what}: {key}: moeref reads {said.get(key)}, the module has {value}")


def check_swap(checks, case, layer):
    """That verify is not blind: two tokens' answers are exchanged."""
    path = os.path.join(os.path.dirname(case), "capture.safetensors")
    name = f"prefill.model.layers.{layer}.mlp.topk_ids"
    data = bytearray(open(path, "rb").read())
    begin = data.index(tensors(path)[name][2])
    row = 4 * tensors(path)[name][1][1]
    a, b = slice(begin, begin + row), slice(begin + row, begin + 2 * row)
    data[a], data[b] = data[b], data[a]
    with open(path, "wb") as f:
        f.write(data)
    status, _ = checks.json("verify", case)
    checks.that(status == 1, f"{case}: exchanged rows are not seen")


def check_model(checks, name, dtype, device, folder):
    what = f"{name} {str(dtype)[6:]}"
    model = models.build(name, dtype).to(device)
    out = os.path.join(folder, f"{name}-{str(dtype)[6:]}")
    with capture(model, out) as c:
        generate(model, prompt(SEQUENCES, LENGTH, device), STEPS)
    checks.that(not os.path.exists(out + ".part"), f"{what}: a part is left")
    case = json.load(open(c.path))
    rows = len(c.routers) * SEQUENCES * (LENGTH + STEPS)
    judged = checks.good(c.path, what, rows)
    check_files(checks, what, out, model, c.routers)
    if "config" in case:
        check_config(checks, what, out, c.routers[0])
    if name == "glm4_moe":
        check_swap(checks, c.path, c.routers[0].layer)
    v = judged["verdicts"] if judged else {}
    print(f"{what:24} {case['arith']:26} {rows:5} rows: {v.get('exact')} exact, {v.get('tie')} tie, "
          f"{v.get('rounding')} rounding", flush=True)


def check_options(checks, device, folder):
    model = models.build("qwen3_moe").to(device)
    x = prompt(SEQUENCES, LENGTH, device)
    out = os.path.join(folder, "options")
    with capture(model, out, max_rows=10, layers=[0, 2], name="some") as c:
        generate(model, x, STEPS)
        with c.phase("mine"):
            generate(model, x[:, :3], 0)
    checks.that(c.path == os.path.join(out, "some.json"), f"options: {c.path}")
    checks.good(c.path, "options", 2 * (10 + 10 + 6))
    got = tensors(os.path.join(out, "capture.safetensors"))
    checks.that({n.split(".")[3] for n in got} == {"0", "2"}, "options: layers")
    checks.that({n.split(".")[0]: t[1][0] for n, t in got.items()} ==
                {"prefill": 10, "decode": 10, "mine": 6}, "options: rows by phase")
    checks.that(not any(m._forward_hooks for m in model.modules()), "options: a hook is left on")


def check_refusals(checks, folder):
    out = os.path.join(folder, "refused")

    def run(model, **options):
        def call():
            with capture(model, out, **options):
                generate(model, prompt(1, 4, "cpu"), 0)
        return call
    model = models.build("olmoe")
    checks.refuses(run(models.build("jamba")), "Linear is only the logits", "jamba")
    checks.refuses(run(torch.nn.Linear(4, 4)), "is it a MoE model", "no model")
    checks.refuses(run(model, layers=[7]), "no router in it at these layers", "layer 7")
    checks.refuses(run(model, layers=[0, 7]), "layer 7 has no router", "layers 0 and 7")
    checks.refuses(run(model, max_rows=0), "expected at least 1", "max_rows 0")
    checks.refuses(run(model, name="../x"), "cannot be a case's name", "name ../x")

    def phase():
        with capture(model, out) as c, c.phase("a.b"):
            pass
    checks.refuses(phase, "expected letters", "phase a.b")

    def nothing():
        with capture(model, out):
            pass
    checks.refuses(nothing, "not one row came", "no forward")
    gate = model.model.layers[1].mlp.gate
    gate.__class__ = type("SomebodysRouter", (type(gate),), {})
    checks.refuses(run(model), "model.layers.1.mlp.gate: SomebodysRouter is not in the table",
                   "unknown class")
    checks.that(not os.path.exists(out) and not os.path.exists(out + ".part"),
                "refusals leave something behind")


def check(checks, device, folder):
    warnings.filterwarnings("ignore")
    for name in models.MODELS:
        if name != "jamba":
            check_model(checks, name, torch.bfloat16, device, folder)
    for name in FP32:
        check_model(checks, name, torch.float32, device, folder)
    check_model(checks, "qwen3_moe", torch.float16, device, folder)
    check_options(checks, device, folder)
    check_refusals(checks, folder)
