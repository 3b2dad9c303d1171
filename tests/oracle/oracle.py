"""Independent oracle of `moeref route`: certified routing and the emulated arithmetics.

    python3 tests/oracle/oracle.py CASE | --captures DIR  [--out FILE.json] [--npz PREFIX]
"""
import argparse
import json
import sys
import time

sys.dont_write_bytecode = True

import numpy as np

import emulate
from casefile import Case, capture_case
from certify import certify
from exactdot import exact_logits, given_logits

CAPTURES = ("glm4moe-tiny", "qwen3moe-tiny")
DEFAULT_ARITHMETICS = ("fp32", "bf16-logits", "bf16-bias", "bf16-logits+bf16-bias")


class Layer:
    """One layer of one phase: its certified answer and, by name, its emulated arithmetics."""

    def __init__(self, router, layer, phase, tensors, arithmetics):
        self.layer, self.phase = layer, phase
        if "logits" in tensors:
            self.logits, self.exponent, finite = given_logits(tensors["logits"])
        else:
            self.logits, self.exponent, finite = exact_logits(tensors["hidden"], tensors["gate"])
        bias = tensors["bias"].f64() if "bias" in tensors else None
        self.answer = certify(router, self.logits, self.exponent, finite,
                              None if bias is None else bias.tolist())
        self.emulated = {a: emulate.run(a, router, self.logits, self.exponent, bias, self.answer)
                         for a in arithmetics}


def solve(case, arithmetics):
    if case.router.n_group > 1:
        raise NotImplementedError("the oracle has no groups")
    return [Layer(case.router, layer, phase, tensors, arithmetics)
            for layer, phase, tensors in case.layers()]


def summary(layers, lines):
    """The figures of `route --json` for one layer, or for several pooled."""
    answers = [x.answer for x in layers]
    gap = np.concatenate([a.gap[a.finite] for a in answers])
    return {"tokens": sum(len(a.gap) for a in answers),
            "tie": sum(int(a.tie.sum()) for a in answers),
            "nonfinite": sum(int((~a.finite).sum()) for a in answers),
            "gap": {name: emulate.nearest_rank(gap, *q) for name, q in emulate.QUANTILES.items()},
            "arith": [emulate.figures(a, [x.emulated[a] for x in layers]) for a in lines]}


def report(case, layers, lines):
    return {"case": case.name,
            "layers": [{"layer": x.layer, "phase": x.phase, **summary([x], lines)}
                       for x in layers],
            "total": summary(layers, lines)}


def save_npz(path, layers):
    arrays = {}
    for x in layers:
        for what in ("ids", "gap", "weights", "tie"):
            arrays[f"{x.phase}.{x.layer}.{what}"] = getattr(x.answer, what)
    np.savez_compressed(path, **arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="?")
    parser.add_argument("--captures")
    parser.add_argument("--arith", action="append")
    parser.add_argument("--out")
    parser.add_argument("--npz")
    args = parser.parse_args()
    if bool(args.case) == bool(args.captures):
        parser.error("give a case or --captures DIR")
    cases = [Case(args.case)] if args.case else [capture_case(args.captures, n) for n in CAPTURES]
    results = []
    for case in cases:
        start = time.time()
        lines = args.arith or DEFAULT_ARITHMETICS
        layers = solve(case, lines)
        results.append(report(case, layers, lines))
        if args.npz:
            save_npz(f"{args.npz}{case.name}.npz", layers)
        total = results[-1]["total"]
        print(f"{case.name}: {total['tokens']} tokens, {total['tie']} ties, gap min "
              f"{total['gap']['min']:.3e}, {time.time() - start:.1f} s")
        for a in total["arith"]:
            print(f"  {a['name']:24} {a['flips']:6} flips, weight moved {a['weight_moved']:.6e}, "
                  f"key error p50 {a['key_error_p50']:.4e} p99 {a['key_error_p99']:.4e}")
    if args.out:
        with open(args.out, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
