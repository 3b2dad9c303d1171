"""The package against the program, on real captures: the same proofs and the same verdicts."""
import json
import os
import tempfile

import numpy as np

import moeref
from support import ROOT, Layers, program, tokens_of

NAMES = {"glm4moe-tiny": None, "qwen3moe-tiny": "bf16-logits+bf16-weights"}
ELSEWHERE = ("layer", "phase", "source")


def test_route_as_the_program():
    for name in NAMES:
        case = os.path.join("cases", name + ".json")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokens.safetensors")
            program("route", case, "--arith", "fp32", "--tokens", path, "-q")
            for layer, phase, inputs in Layers(os.path.join(ROOT, case)):
                found = moeref.route(router=Layers(os.path.join(ROOT, case)).router, **inputs)
                want = tokens_of(path, layer, phase)
                assert np.array_equal(found.ids, want["topk_ids"].view(np.int32))
                assert found.weights.tobytes() == want["topk_weights"].tobytes()
                # The program's filter is another one where it emulates, and so may gaps be.
                assert np.all(np.abs(found.gap - want["gap"]) <= 2e-12)
                assert np.all(found.gap_radius <= 1e-12)
                assert (sum(found.certified.values()) == len(found.ids) ==
                        found.certificate.size)


def test_verify_as_the_program():
    seen = 0
    for name, arith in NAMES.items():
        case = os.path.join("cases", name + ".json")
        layers = Layers(os.path.join(ROOT, case))
        said = json.loads(program("verify", case, "--json", "-"))
        assert said["worst_omitted"] == 0
        for layer, phase, inputs in layers:
            found = moeref.verify(router=layers.router, arith=arith, topk_ids=layers.observed(
                layer, phase)[0], topk_weights=layers.observed(layer, phase)[1], **inputs)
            row = next(r for r in said["layers"] if (r["layer"], r["phase"]) == (layer, phase))
            assert found.counts == row["verdicts"] and found.rows == row["rows"]
            want = [{k: v for k, v in w.items() if k not in ELSEWHERE} for w in said["worst"]
                    if (w["layer"], w["phase"]) == (layer, phase)]
            got = [{k: v for k, v in w.items() if k not in ELSEWHERE}
                   for w in found.json["worst"]]
            assert got == want
            for finding in found.worst:
                assert moeref.VERDICTS[found.verdicts[finding.row]] == finding.verdict
            assert found.ok and found.arith == said["arith"]
            seen += found.rows
    assert seen == 3840


def test_config_as_the_program():
    for name in NAMES:
        path = os.path.join("data", "captures", name, "config.json")
        said = json.loads(program("router", path, "--json", "-"))["router"]
        router = moeref.Router.from_config(os.path.join(ROOT, path))
        for field in router.__dataclass_fields__:
            if field != "group_score":
                assert getattr(router, field) == said[field], field
        assert moeref.Router.from_config(os.path.join(ROOT, path), top_k=3).top_k == 3
