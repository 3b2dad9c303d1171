"""Exact dot products of bf16, fp16 or fp32 rows, by integers only: no floating-point sum, no BLAS.

A matrix becomes integers times one common power of two; the integers are cut into limbs so small
that every int64 sum of limb products is exact; the limb sums are put together as Python ints.
"""
import numpy as np

from formats import split


def limbs_of(tensor, width):
    """(limbs, exponent, finite): tensor = 2^exponent * sum over k of limbs[k] * 2^(width k),
    |limb| < 2^width."""
    m, e, finite = split(tensor)
    if not m.any():
        return [np.zeros(m.shape, np.int64)], 0, finite
    # A trailing zero moves from the significand to the exponent: fewer limbs.
    while True:
        loose = (m != 0) & (m & 1 == 0)
        if not loose.any():
            break
        m = np.where(loose, m >> 1, m)
        e = e + loose
    exponent = int(e[m != 0].min())
    shift = np.where(m != 0, e - exponent, 0)
    limb, r = np.divmod(shift, width)
    assert width <= 38  # a 24-bit significand shifted by less than width stays inside int64
    v = np.abs(m) << r
    limbs = [np.zeros(m.shape, np.int64) for _ in range(int(limb.max()) + 64 // width + 2)]
    step = 0
    while v.any():
        part = np.sign(m) * (v & ((1 << width) - 1))
        for k in np.unique(limb):
            at = limb == k
            limbs[k + step][at] += part[at]
        v = v >> width
        step += 1
    while len(limbs) > 1 and not limbs[-1].any():
        limbs.pop()
    return limbs, exponent, finite


def exact_logits(hidden, gate):
    """(L, exponent, finite): logits = L * 2^exponent, L an object array [tokens, experts] of ints.

    finite [tokens] is false where a hidden row holds NaN or Inf. A gate must be finite."""
    n = hidden.shape[1]
    # 2^6 limb pairs at most share a power of two (spans of fp32: 277 bits, under 64 limbs of 5).
    width = (62 - 6 - (n - 1).bit_length()) // 2
    a, ea, finite = limbs_of(hidden, width)
    b, eb, gate_finite = limbs_of(gate, width)
    assert gate_finite.all(), "NaN or Inf in a gate weight"
    assert min(len(a), len(b)) <= 64 and n * 64 << 2 * width < 1 << 63
    sums = [np.zeros((hidden.shape[0], gate.shape[0]), np.int64)
            for _ in range(len(a) + len(b) - 1)]
    for i, x in enumerate(a):
        for j, w in enumerate(b):
            if x.any() and w.any():
                sums[i + j] += x @ w.T  # int64: numpy's own loop, no BLAS
    total = sums[-1].astype(object)
    for part in reversed(sums[:-1]):
        total = total * (1 << width) + part.astype(object)
    return total, ea + eb, finite.all(axis=1)


def given_logits(tensor):
    """The same form for logits that are the input: exact by definition."""
    m, e, finite = split(tensor)
    exponent = int(e[m != 0].min()) if m.any() else 0
    total = m.astype(object) * (1 << np.where(m != 0, e - exponent, 0).astype(object))
    return total, exponent, finite.all(axis=1)
