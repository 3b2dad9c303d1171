"""Adversarial classes of `moeref gen`: the program's answers, a right kernel, and a wrong one."""
import os
import tempfile

import numpy as np

import moeref
from support import NONFINITE, TIE, Layers, program, refused, tokens_of


def classes():
    return [line.split()[0] for line in program("gen", "--list").splitlines()[1:] if line[:1].isalpha()]


def another(ids, experts, token):
    """An expert that the token does not have."""
    return next(e for e in range(experts - 1, -1, -1) if e not in ids[token])


def check(layers, inputs, want):
    router = layers.router
    found = moeref.route(router=router, allow_nonfinite=True, **inputs)
    assert np.array_equal(found.ids, want["topk_ids"].view(np.int32))
    assert np.array_equal(found.certificate, want["certificate"])
    assert found.weights.tobytes() == want["topk_weights"].tobytes()
    assert {t.token for t in found.ties} == set(np.flatnonzero(found.certificate == TIE))
    bad = np.flatnonzero(found.certificate == NONFINITE)
    if bad.size:
        with refused(f"logits[{bad[0]}, "):
            moeref.route(router=router, **inputs)
    # A kernel that chooses and weighs rightly. Where nothing is right any ids will do.
    ids = found.ids.copy()
    ids[bad] = np.arange(router.top_k)
    right = moeref.verify(router=router, topk_ids=ids, allow_nonfinite=True,
                          topk_weights=found.weights.astype(np.float32), **inputs)
    assert right.ok and right.counts["rounding"] == 0, right.counts
    # One that chooses another expert, but for the best, in every row that has one to lose.
    wrong = ids.copy()
    if router.top_k < router.experts:
        for token in range(len(ids)):
            wrong[token, 0] = another(ids, router.experts, token)
    judged = moeref.verify(router=router, topk_ids=wrong, allow_nonfinite=True, **inputs)
    return judged, found


def test_classes():
    names, wrong = classes(), 0
    assert len(names) >= 20
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            program("gen", name, "-o", folder)
            path = os.path.join(folder, name + ".json")
            tokens = os.path.join(folder, "tokens")
            program("route", path, "--arith", "fp32", "--tokens", tokens, "-q")
            layers = Layers(path)
            for layer, phase, inputs in layers:
                judged, found = check(layers, inputs, tokens_of(tokens, layer, phase))
                # What is chosen can be right only in a tie, or be hidden by rounding.
                clear = ((found.certificate < TIE) & (found.gap > 0.05) &
                         np.isfinite(found.gap)) if layers.router.n_group == 1 else \
                    np.zeros(len(found.ids), bool)
                for token in np.flatnonzero(clear):
                    assert moeref.VERDICTS[judged.verdicts[token]] == "wrong", (name, token)
                wrong += judged.counts["wrong"]
    assert wrong > 100
