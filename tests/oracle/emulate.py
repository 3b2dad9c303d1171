"""The emulated arithmetics of `route --arith`: a few stated roundings, everything else exact.

A line is names joined by '+'. All of them start from the exact logit:
  fp32          logit rounded once to fp32; score = correctly rounded fp32 of the exact score of
                the rounded logits; key = fp32 sum of score and bias
  bf16-logits   the logit is rounded once to bf16 instead; fp16-logits the same
  bf16-bias     the bias is rounded to bf16
  bf16-scores   the exact score is rounded once to bf16 instead
  bf16-weights  the weight is rounded to bf16 (no effect on selection)
"""
import gmpy2
import numpy as np

from certify import scores_of
from formats import odd_f64, round_to

NAMES = {"fp32", "bf16-logits", "fp16-logits", "bf16-bias", "bf16-scores", "bf16-weights"}
QUANTILES = {"min": (0, 1), "p001": (1, 1000), "p01": (1, 100), "p10": (1, 10), "p50": (1, 2),
             "p90": (9, 10), "max": (1, 1)}


def nearest_rank(values, numerator, denominator):
    """sorted[ceil(q n) - 1], in integers so that q n = 99.0000001 cannot move the rank."""
    if len(values) == 0:
        return None
    at = max(0, -(-numerator * len(values) // denominator) - 1)
    return float(np.partition(values, at)[at])


def scores(logits, kind, name):
    """Correctly rounded scores in a format, of binary64 logits that are fp32 values: binary64 with
    a bound on its error, and MPFR for the few that the bound leaves undecided."""
    if kind == "sigmoid":
        with np.errstate(over="ignore"):
            approx = 1 / (1 + np.exp(-logits))
        # exp, 1 + and 1 / of relative error 2^-52 each at most: 2^-48 is 5 times that.
        slack = np.full(logits.shape, 2.0**-48)
    else:
        distance = logits - logits.max(axis=1, keepdims=True)
        power = np.exp(distance)
        approx = power / power.sum(axis=1, keepdims=True)
        # The difference's rounding, |d| 2^-53, becomes relative; the sum adds experts * 2^-53.
        slack = 2.0**-52 * (4 + logits.shape[1] - 2 * distance.min(axis=1, keepdims=True))
        slack = np.broadcast_to(slack, logits.shape)
    low, high = round_to(approx * (1 - slack), name), round_to(approx * (1 + slack), name)
    # Below 2^-1000 binary64 itself underflows; every format here rounds that to zero.
    for t in np.unique(np.nonzero(low != high)[0]):
        at = np.flatnonzero(low[t] != high[t])
        exact = exact_scores(logits[t], kind)
        low[t, at] = [nearest(exact[i], name) for i in at]
    return low


def exact_scores(logits, kind):
    """Scores at 256 bits of fp32 logits, made integers by the power of two that fits them all."""
    ratios = [float(v).as_integer_ratio() for v in logits]
    shift = max(d.bit_length() - 1 for _, d in ratios)
    with gmpy2.context(gmpy2.get_context(), precision=512):
        return scores_of([n * ((1 << shift) // d) for n, d in ratios], -shift, kind)


def nearest(value, name):
    """One rounding of an MPFR value to a format, by rounding to odd in binary64 first."""
    f = float(value)
    integer, exponent = f, 0
    if value != f and (np.float64(f).view(np.uint64) & 1) == 0:
        f = np.nextafter(f, np.inf if value > f else -np.inf)
    return float(round_to(f, name))


class Emulated:
    """One layer of one phase under one arithmetic, over its finite tokens."""


def run(line, router, logits, exponent, bias, answer):
    parts = line.split("+")
    if set(parts) - NAMES:
        raise ValueError(f"unknown arithmetic {line!r}")
    finite = np.flatnonzero(answer.finite)
    wide = odd_f64(logits[finite], exponent)
    logit_format = next((p.split("-")[0] for p in parts if p.endswith("-logits")), "fp32")
    z = round_to(wide, logit_format)
    assert np.isfinite(z).all(), "a logit overflows its format: not emulated here"
    score = scores(z, router.score, "bf16" if "bf16-scores" in parts else "fp32")
    key = score.astype(np.float32)
    if bias is not None:
        b = round_to(bias, "bf16") if "bf16-bias" in parts else bias
        key = key + b.astype(np.float32)  # one IEEE addition in fp32
    assert key.dtype == np.float32

    # A stable sort of the negated keys puts the lowest id first among equals.
    ids = np.argsort(-key, axis=1, kind="stable")[:, :router.top_k]
    certified = answer.ids[finite]
    foreign = ~(ids[:, :, None] == certified[:, None, :]).any(axis=2)
    weight = np.take_along_axis(score, ids, axis=1)
    if router.norm_topk_prob:
        weight = weight / weight.sum(axis=1, keepdims=True)
    weight = weight * router.routed_scaling_factor
    if "bf16-weights" in parts:
        weight = round_to(weight, "bf16")

    out = Emulated()
    out.ids, out.tokens = ids, len(finite)
    out.flips = int(foreign.any(axis=1).sum())
    out.moved = (weight * foreign).sum(axis=1) / weight.sum(axis=1)
    out.key_error = np.abs(key.astype(np.float64) - answer.keys[finite]).ravel()
    return out


def figures(name, runs):
    """The JSON object of one arithmetic, for one layer or pooled over several."""
    tokens = sum(r.tokens for r in runs)
    flips = sum(r.flips for r in runs)
    error = np.concatenate([r.key_error for r in runs])
    return {"name": name, "flips": flips, "flip_rate": flips / max(tokens, 1),
            "weight_moved": float(np.concatenate([r.moved for r in runs]).sum() / max(tokens, 1)),
            "key_error_p50": nearest_rank(error, 1, 2),
            "key_error_p99": nearest_rank(error, 99, 100)}
