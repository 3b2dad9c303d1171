"""The real-number answer: ids, gap at the cut, weights, from exact logits, by MPFR (gmpy2).

Every expert's key is computed at BITS bits, brute force; a comparison closer than the stated error
is decided at more bits, or as a tie, and a tie needs equal logits and equal biases (for sigmoid and
softmax with rational biases there is no other: Lindemann-Weierstrass theorem).
"""
import functools

import gmpy2
import numpy as np

BITS = 192  # a key errs by less than 2^-180 * (1 + |bias|): see scores_of, and one sum
SLACK = gmpy2.exp2(-160)  # relative; more than a weight errs by
CLOSE = 2.0**-150  # keys that differ by less, relative to 1 + |biases|, go to compare()
LIMIT = 1 << 14   # bits at which compare() gives up


class Undecided(Exception):
    pass


def real(integer, exponent):
    """integer * 2^exponent, exact if the context's precision covers the integer."""
    return gmpy2.mul_2exp(gmpy2.mpfr(integer), exponent) if exponent >= 0 else \
        gmpy2.div_2exp(gmpy2.mpfr(integer), -exponent)


def precision(logits):
    """Bits at which every logit of the row is exact, so that only exp and what follows rounds."""
    return max(BITS, max(v.bit_length() for v in logits))


def scores_of(logits, exponent, score):
    """Scores of one token's experts in the current context. Four roundings (sigmoid) or, for
    softmax, experts + 2 of them, each of relative size 2^-precision."""
    if score == "sigmoid":
        return [1 / (1 + gmpy2.exp(-real(v, exponent))) for v in logits]
    top = max(logits)  # the difference of integers is exact, exp of it never overflows
    powers = [gmpy2.exp(real(v - top, exponent)) for v in logits]
    total = gmpy2.fsum(powers)
    return [p / total for p in powers]


def compare(i, j, logits, exponent, score, bias):
    """-1, 0, 1 as key_i <, =, > key_j."""
    li, lj = logits[i], logits[j]
    if bias is None or bias[i] == bias[j]:
        return (li > lj) - (li < lj)  # the score is strictly increasing
    bits = precision(logits)
    while bits <= LIMIT:
        with gmpy2.context(gmpy2.get_context(), precision=bits):
            s = scores_of(logits, exponent, score)
            d = s[i] - s[j] + (gmpy2.mpfr(bias[i]) - gmpy2.mpfr(bias[j]))
            radius = gmpy2.div_2exp(gmpy2.mpfr(1 + abs(bias[i]) + abs(bias[j])), bits - 24)
            if abs(d) > radius:
                return 1 if d > 0 else -1
        bits *= 2
    raise Undecided(f"experts {i} and {j}")


class Answer:
    """One layer of one phase: arrays over tokens, and keys (binary64, RNE of the exact key)."""

    def __init__(self, tokens, experts, k):
        self.ids = np.full((tokens, k), -1, np.int32)
        self.weights = np.full((tokens, k), np.nan)
        self.gap = np.full(tokens, np.nan)
        self.tie = np.zeros(tokens, bool)
        self.keys = np.full((tokens, experts), np.nan)
        self.finite = np.zeros(tokens, bool)


def order(rounded, k, beats, blur):
    """Ids of the k+1 largest keys, descending, equal keys by lowest id.

    rounded (the keys in binary64) is monotone in keys (RNE), so whatever may belong to the first
    k+1 has a rounded key of at least the (k+1)-th largest, less the error of a key. beats(i, j) is
    the sign of key_i - key_j, never in doubt. blur covers that error where score and bias cancel;
    elsewhere it is far below the rounding to binary64."""
    near = np.sort(rounded)[::-1][min(k, len(rounded) - 1)]
    pool = np.flatnonzero(rounded >= near - abs(near) * 2.0**-40 - blur)
    first = sorted(pool.tolist(), key=lambda i: (-rounded[i], i))
    # A run of neighbours that are close in binary64 is sorted by the exact comparison.
    out, at = [], 0
    while at < len(first):
        end = at + 1
        while end < len(first) and rounded[first[end - 1]] - rounded[first[end]] <= \
                abs(rounded[first[end]]) * 2.0**-50 + blur:
            end += 1
        run = first[at:end]
        if len(run) > 1:
            run.sort(key=functools.cmp_to_key(lambda i, j: -beats(i, j) or i - j))
        out += run
        at = end
    return out[:k + 1]


def certify(router, logits, exponent, finite, bias):
    """logits: object array of integers, scaled by 2^exponent; bias: list of floats or None."""
    tokens, experts = logits.shape
    k = router.top_k
    answer = Answer(tokens, experts, k)
    answer.finite = finite.copy()
    for t in np.flatnonzero(finite):
        row = logits[t].tolist()
        with gmpy2.context(gmpy2.get_context(), precision=precision(row)):
            certify_token(router, answer, t, row, exponent, bias)
    return answer


def certify_token(router, answer, t, row, exponent, bias):
    k = router.top_k
    scores = scores_of(row, exponent, router.score)
    keys = scores if bias is None else [s + b for s, b in zip(scores, bias)]
    rounded = np.array([float(v) for v in keys])
    answer.keys[t] = rounded

    def beats(i, j):
        d = keys[i] - keys[j]
        size = abs(keys[i]) if bias is None else 1 + abs(bias[i]) + abs(bias[j])
        if abs(d) > size * CLOSE:
            return 1 if d > 0 else -1
        return compare(i, j, row, exponent, router.score, bias)

    blur = 0.0 if bias is None else (1 + max(map(abs, bias))) * 2.0**-140
    best = order(rounded, k, beats, blur)
    answer.ids[t] = best[:k]
    if len(best) > k:
        i, j = best[k - 1], best[k]
        answer.tie[t] = row[i] == row[j] and (bias is None or bias[i] == bias[j])
        answer.gap[t] = 0.0 if answer.tie[t] else float(keys[i] - keys[j])
    chosen = [scores[i] for i in best[:k]]
    total = gmpy2.fsum(chosen) if router.norm_topk_prob else 1
    for n, s in enumerate(chosen):
        answer.weights[t, n] = nearest_f64(s / total * router.routed_scaling_factor)


def nearest_f64(value):
    """The binary64 nearest to the real number that value stands for, to 2^-160 of it."""
    low, high = float(value * (1 - SLACK)), float(value * (1 + SLACK))
    assert low == high, "a weight too close to the middle of two binary64 numbers"
    return low
