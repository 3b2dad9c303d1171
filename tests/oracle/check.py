"""Compares `moeref route` with the oracle.

    python3 tests/oracle/check.py build/moeref [CAPTURES_DIR]

Exit 1 on any disagreement, on a program that fails, and when nothing could be compared. Standing
apart from the program: only its files (--tokens, --json) are read.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import numpy as np

import made
import oracle
import selfcheck
from casefile import Case
from stfile import File

CASES = ("toy", "glm4moe-tiny", "qwen3moe-tiny")
MORE_ARITHMETICS = ("fp16-logits", "bf16-scores", "bf16-weights", "bf16-logits+bf16-weights",
                    "bf16-bias+bf16-scores", "bf16-logits+bf16-bias+bf16-scores+bf16-weights")
TIE, UNDECIDED, NONFINITE = 3, 4, 5
CERTIFICATES = ("bound", "exact", "mpfr", "tie", "undecided", "nonfinite")
SHOWN = 5  # disagreements printed of each kind

GAP_ABSOLUTE = 1e-12   # what `route` promises of a reported gap
WEIGHT_ULPS = 4        # without --exact-weights; with it: none
MOVED_RELATIVE, MOVED_ABSOLUTE = 1e-9, 1e-12
KEY_ERROR_RELATIVE = 1e-3


class Table:
    """What was compared, how often, and the first disagreements."""

    def __init__(self):
        self.rows, self.bad = [], 0

    def add(self, case, what, compared, wrong):
        """wrong: list of one-line descriptions."""
        wrong = list(wrong)
        self.rows.append((case, what, compared, len(wrong)))
        self.bad += len(wrong)
        for text in wrong[:SHOWN]:
            print(f"DISAGREE {case} {what}: {text}")
        if len(wrong) > SHOWN:
            print(f"DISAGREE {case} {what}: and {len(wrong) - SHOWN} more")

    def show(self):
        print(f"\n{'case':28} {'what':34} {'compared':>10} {'wrong':>7}")
        for case, what, compared, wrong in self.rows:
            print(f"{case:28} {what:34} {compared:10} {wrong:7}")


def bits(values):
    return " ".join(f"{float(v).hex()}" for v in np.atleast_1d(values))


def ulps_apart(a, b):
    """Distance in binary64 steps; values of unlike sign or NaN against a number are far apart."""
    ia, ib = (np.ascontiguousarray(v, np.float64).view(np.int64) for v in (a, b))
    both_nan = np.isnan(a) & np.isnan(b)
    far = (np.isnan(a) != np.isnan(b)) | ((ia < 0) != (ib < 0))
    return np.where(both_nan, 0, np.where(far, np.iinfo(np.int64).max, np.abs(ia - ib)))


def compare_tokens(table, name, layers, path, ulps):
    """One --tokens file against the oracle's layers."""
    out = File(path)
    wrong = {w: [] for w in ("tensors", "topk_ids", "gap", "certificate", "topk_weights")}
    tokens = weights = 0
    counts = {}
    for x in layers:
        a, at = x.answer, f"{x.phase}.model.layers.{x.layer}.mlp."
        want = {"topk_ids": ("I32", a.ids.shape), "topk_weights": ("F64", a.ids.shape),
                "gap": ("F64", a.gap.shape), "certificate": ("U8", a.gap.shape)}
        got = {k: out[at + k] if at + k in out else None for k in want}
        broken = [f"{at}{k}: expected {d} {list(s)}, found " +
                  (f"{got[k].dtype} {list(got[k].shape)}" if got[k] else "nothing")
                  for k, (d, s) in want.items()
                  if not got[k] or (got[k].dtype, got[k].shape) != (d, s)]
        wrong["tensors"] += broken
        if broken:
            continue
        ids, certificate = got["topk_ids"].bits, got["certificate"].bits
        gap, weight = got["gap"].f64(), got["topk_weights"].f64()
        tokens += len(ids)
        weights += ids.size
        counts[x.phase, x.layer] = np.bincount(certificate, minlength=6)

        def note(what, bad, text):
            wrong[what] += [f"{at[:-1]} token {t}: {text(t)}" for t in np.flatnonzero(bad)]

        note("topk_ids", (ids != a.ids).any(axis=1),
             lambda t: f"expected {a.ids[t].tolist()} found {ids[t].tolist()}, "
                       f"gap {bits(a.gap[t])}")
        with np.errstate(invalid="ignore"):
            note("gap", a.finite & ~(np.abs(gap - a.gap) <= GAP_ABSOLUTE),
                 lambda t: f"expected {bits(a.gap[t])} found {bits(gap[t])}")
        # A decided answer is never a tie unless it is one, and the oracle decided all of these.
        note("certificate", ((certificate == TIE) != a.tie) | (certificate > NONFINITE)
             | ((certificate == NONFINITE) != ~a.finite) | (certificate == UNDECIDED),
             lambda t: f"found {certificate[t]}, exact tie {a.tie[t]}, finite {a.finite[t]}")
        away = np.where(a.finite[:, None], ulps_apart(weight, a.weights), 0)
        note("topk_weights", (away > ulps).any(axis=1),
             lambda t: "; ".join(f"expert {a.ids[t, n]}: expected {bits(a.weights[t, n])} found "
                                 f"{bits(weight[t, n])} ({away[t, n]} ulp)"
                                 for n in np.flatnonzero(away[t] > ulps)))
    expected = 4 * len(layers)
    table.add(name, "tensors of --tokens", expected, wrong["tensors"])
    table.add(name, "topk_ids, with order [tokens]", tokens, wrong["topk_ids"])
    table.add(name, "gap, 1e-12 [tokens]", tokens, wrong["gap"])
    table.add(name, "certificate [tokens]", tokens, wrong["certificate"])
    label = "exact" if ulps == 0 else f"{ulps} ulp"
    table.add(name, f"topk_weights, {label}", weights, wrong["topk_weights"])
    return counts


def close(found, expected, relative, absolute):
    if expected is None or found is None:
        return expected is None and found is None
    return abs(found - expected) <= max(relative * abs(expected), absolute)


def compare_figures(where, found, expected):
    """One layer's, or the total's, object of --json. Yields disagreements."""
    if found.get("tokens") != expected["tokens"]:
        yield f"{where}: tokens: expected {expected['tokens']} found {found.get('tokens')}"
    for key, value in expected["gap"].items():
        if not close(found.get("gap", {}).get(key), value, 0, GAP_ABSOLUTE):
            yield f"{where}: gap.{key}: expected {value!r} found {found.get('gap', {}).get(key)!r}"
    theirs = {a["name"]: a for a in found.get("arith", [])}
    for a in expected["arith"]:
        b = theirs.get(a["name"])
        if b is None:
            yield f"{where}: no arithmetic {a['name']!r} among {sorted(theirs)}"
            continue
        limits = {"flips": (0, 0), "flip_rate": (1e-12, 0),
                  "weight_moved": (MOVED_RELATIVE, MOVED_ABSOLUTE),
                  "key_error_p50": (KEY_ERROR_RELATIVE, 0),
                  "key_error_p99": (KEY_ERROR_RELATIVE, 0)}
        for key, limit in limits.items():
            if not close(b.get(key), a[key], *limit):
                yield (f"{where}: {a['name']}: {key}: expected {a[key]!r} found {b.get(key)!r}")


def compare_json(table, name, expected, path, counts):
    with open(path) as f:
        found = json.load(f)
    wrong = []
    theirs = {(x.get("phase"), x.get("layer")): x for x in found.get("layers", [])}
    ours = {(x["phase"], x["layer"]) for x in expected["layers"]}
    if set(theirs) != ours or len(found.get("layers", [])) != len(ours):
        wrong.append(f"layers: expected {sorted(ours)} found {sorted(theirs)}")
    for x in expected["layers"]:
        at = x["phase"], x["layer"]
        if at in theirs:
            wrong += compare_figures(f"{at[0]} layer {at[1]}", theirs[at], x)
            if at in counts:
                wrong += certified(f"{at[0]} layer {at[1]}", theirs[at], counts[at])
    total = found.get("total", {})
    wrong += compare_figures("total", total, expected["total"])
    if counts:
        wrong += certified("total", total, sum(counts.values()))
    table.add(name, "figures of --json [objects]", len(ours) + 1, wrong)


def certified(where, found, counts):
    want = dict(zip(CERTIFICATES, counts.tolist()))
    if found.get("certified") != want:
        yield f"{where}: certified: the certificates of --tokens sum to {want}, " \
              f"found {found.get('certified')}"


def route(program, arguments, folder):
    """Runs the program; the two paths it wrote, or a line that says how it failed."""
    tokens, figures = (os.path.join(folder, n) for n in ("out.safetensors", "out.json"))
    for path in (tokens, figures):
        if os.path.exists(path):
            os.remove(path)
    command = [program, "route", *arguments, "--tokens", tokens, "--json", figures]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return None, None, f"exit {done.returncode}: {' '.join(command)}: {done.stderr.strip()}"
    return tokens, figures, None


def check(table, program, name, case, arguments, figures=True):
    """The oracle's answer once, the program twice: as it comes, and with everything asked of it."""
    start = time.time()
    lines = [*oracle.DEFAULT_ARITHMETICS, *MORE_ARITHMETICS]
    layers = oracle.solve(case, lines)
    solved = time.time() - start
    selfcheck.real_layers(case, layers)
    asked = [a for line in lines for a in ("--arith", line)]
    with tempfile.TemporaryDirectory() as folder:
        for label, extra, use, ulps in (
                ("", [], oracle.DEFAULT_ARITHMETICS, WEIGHT_ULPS),
                (" exact", ["--exact-weights", *asked], lines, 0)):
            start = time.time()
            tokens, report, failure = route(program, [*arguments, *extra], folder)
            table.add(name + label, "runs", 1, [failure] if failure else [])
            if failure:
                continue
            ran = time.time() - start
            counts = compare_tokens(table, name + label, layers, tokens, ulps)
            if figures:
                compare_json(table, name + label, oracle.report(case, layers, use), report, counts)
            print(f"{name}{label}: oracle {solved:.1f} s, program {ran:.2f} s")


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    program = sys.argv[1]
    captures = sys.argv[2] if len(sys.argv) == 3 else None
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    table = Table()
    selfcheck.synthetic()
    for name in CASES:
        path = os.path.relpath(os.path.join(root, "cases", name + ".json"))
        if not os.path.exists(path):
            table.add(name, "case file", 1, [f"{path} is not there"])
            continue
        check(table, program, name, Case(path), [path])
        if captures and name in oracle.CAPTURES:
            capture = os.path.join(captures, name + "-capture.safetensors")
            check(table, program, name + " full", Case(path, capture),
                  [path, "--capture", capture])
    with tempfile.TemporaryDirectory() as folder:
        for path, figures in made.build(folder):
            case = Case(path)
            check(table, program, case.name, case, [path], figures)
    table.show()
    print(f"\n{table.bad} disagreements" if table.bad else "\nno disagreement")
    return 1 if table.bad else 0


if __name__ == "__main__":
    sys.exit(main())
