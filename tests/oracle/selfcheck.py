"""Checks the oracle itself against something simpler: plain Python integers for the dot products,
fractions.Fraction for the roundings, mpmath (its own exp, 200 digits) for the keys, and numpy
binary64 for whole layers.
"""
import sys
from fractions import Fraction
from operator import mul

sys.dont_write_bytecode = True
import mpmath
import numpy as np

import emulate
from certify import certify
from exactdot import exact_logits, given_logits
from formats import FORMATS, odd_f64, round_to
from stfile import Tensor

# Enough for the hardest made pair: logits 2^-233 apart behind scores of 1 - 2^-144.
DIGITS = 200


UNIT = 200  # every value of these formats is an integer times 2^-200


def integers(tensor):
    return [[n * (1 << UNIT) // d for n, d in (float(v).as_integer_ratio() for v in row)]
            for row in tensor.f64()]


def dots(hidden, gate, tokens):
    x, w = integers(hidden), integers(gate)
    return {t: [Fraction(sum(map(mul, x[t], row)), 1 << 2 * UNIT) for row in w] for t in tokens}


def rounded(value, name):
    """A Fraction rounded once to a format, RNE, by integer division."""
    p, emin, emax = FORMATS[name]
    if value == 0:
        return 0.0
    size = abs(value)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e = max(e - (size < Fraction(2) ** e), emin)  # 2^e <= size < 2^(e+1), or subnormal
    unit = Fraction(2) ** (e - p + 1)
    q, rest = divmod(size, unit)
    q += rest * 2 > unit or (rest * 2 == unit and q % 2 == 1)
    result = q * unit
    if result >= Fraction(2) ** (emax + 1):
        return float("inf") if value > 0 else float("-inf")
    return float(result) if value > 0 else -float(result)


def real(value):
    return mpmath.mpf(value.numerator) / value.denominator


def mp_scores(logits, score):
    z = [real(v) for v in logits]
    if score == "sigmoid":
        return [1 / (1 + mpmath.exp(-v)) for v in z]
    top = max(z)
    power = [mpmath.exp(v - top) for v in z]
    total = mpmath.fsum(power)
    return [v / total for v in power]


def check_token(router, answer, t, logits, bias):
    """ids, gap and weights of one token, by sorting all experts at DIGITS."""
    s = mp_scores(logits, router.score)
    key = [a + (0 if bias is None else mpmath.mpf(bias[e])) for e, a in enumerate(s)]
    order = sorted(range(len(key)), key=lambda e: (-key[e], e))
    k = router.top_k
    assert order[:k] == answer.ids[t].tolist(), (t, order[:k], answer.ids[t])
    if k < len(order):
        gap = key[order[k - 1]] - key[order[k]]
        assert abs(gap - answer.gap[t]) <= 1e-15 and (gap == 0) == answer.tie[t], (t, gap)
    total = mpmath.fsum(s[e] for e in order[:k]) if router.norm_topk_prob else 1
    for n, e in enumerate(order[:k]):
        w = s[e] / total * router.routed_scaling_factor
        assert float(w) == answer.weights[t, n], (t, n, w)
    return key


def check_emulated(line, router, answer, logits, bias, run, tokens):
    """The emulated ids of whole tokens, each rounding by Fraction or from DIGITS."""
    parts = line.split("+")
    form = next((p[:4] for p in parts if p.endswith("-logits")), "fp32")
    for t in tokens:
        z = [Fraction(rounded(v, form)) for v in logits[t]]
        s = [rounded(Fraction(*mpmath_ratio(v)), "bf16" if "bf16-scores" in parts else "fp32")
             for v in mp_scores(z, router.score)]
        key = s
        if bias is not None:
            b = [rounded(Fraction(v), "bf16") if "bf16-bias" in parts else v for v in bias]
            key = [rounded(Fraction(x) + Fraction(y), "fp32") for x, y in zip(s, b)]
        order = sorted(range(len(key)), key=lambda e: (-key[e], e))[:router.top_k]
        assert order == run.ids[t].tolist(), (line, t)


def mpmath_ratio(value):
    sign, man, exp, _ = mpmath.mpf(value)._mpf_
    man = -int(man) if sign else int(man)
    return (man << exp, 1) if exp >= 0 else (man, 1 << -exp)


def random_tensor(rng, dtype, rows, cols, spread):
    """Finite elements of random sign and fraction, exponents over `spread` binades, some zeros and,
    for a full spread, subnormals."""
    fraction, field = {"BF16": (7, 255), "F16": (10, 31), "F32": (23, 255)}[dtype]
    low = 0 if spread >= field else field // 2 - spread // 2
    e = rng.integers(low, min(low + spread, field), (rows, cols))
    bits = (rng.integers(0, 2, (rows, cols)) << (15 if dtype != "F32" else 31)) | (e << fraction)
    bits |= rng.integers(0, 1 << fraction, (rows, cols))
    bits[rng.random((rows, cols)) < 0.05] = 0
    return Tensor(dtype, bits.astype(np.uint32 if dtype == "F32" else np.uint16))


def check_dots(rng):
    """Also the widest spread of exponents, where a sum of any fixed width would fail."""
    count = 0
    for a in ("BF16", "F16", "F32"):
        for b in ("BF16", "F16", "F32"):
            for spread in (3, 20, 255):
                x, w = random_tensor(rng, a, 3, 37, spread), random_tensor(rng, b, 4, 37, spread)
                total, exponent, _ = exact_logits(x, w)
                want = dots(x, w, range(3))
                for t in range(3):
                    for e in range(4):
                        assert total[t, e] * Fraction(2) ** exponent == want[t][e]
                        count += 1
                wide = odd_f64(total, exponent)
                for name in FORMATS:
                    got = round_to(wide, name)
                    for t in range(3):
                        for e in range(4):
                            assert float(got[t, e]) == rounded(want[t][e], name)
    return count


def check_middles():
    """Sums exactly between two values of a format, and a hair beside: the sticky bit decides."""
    count = 0
    for name, (p, emin, _) in FORMATS.items():
        for e in (0, 3, emin - 2):
            for odd in (0, 1):
                for hair in (-1, 0, 1):
                    n = (((1 << (p - 1)) + odd) * 2 + 1 << 200) + hair
                    total = np.array([[n, -n]], object)
                    got = round_to(odd_f64(total, e - 200 - p), name)
                    want = rounded(Fraction(n) * Fraction(2) ** (e - 200 - p), name)
                    assert got[0].tolist() == [want, -want]
                    count += 2
    return count


class SmallRouter:
    top_k, routed_scaling_factor = 3, 2.5  # an odd cut goes through a pair of equal experts

    def __init__(self, score, norm=True):
        self.score, self.norm_topk_prob = score, norm


def check_ties(rng):
    """Experts that are equal (ties), and keys that differ only far behind the binary64 point."""
    count = 0
    for score in ("sigmoid", "softmax"):
        for with_bias in (False, True):
            x = random_tensor(rng, "BF16", 40, 64, 6)
            w = random_tensor(rng, "BF16", 16, 64, 6)
            bits = w.bits.copy()
            bits[8:] = bits[:8]        # experts 8..15 repeat 0..7
            bits[15, 0] ^= 1           # and one pair differs by one bit of one weight
            w, x.bits[:20, 0] = Tensor("BF16", bits), 0x0d80  # which 2^-100 multiplies
            bias = rng.standard_normal(8).astype(np.float32).astype(float).tolist() * 2 \
                if with_bias else None
            router = SmallRouter(score, norm=with_bias)
            total, exponent, finite = exact_logits(x, w)
            answer = certify(router, total, exponent, finite, bias)
            logits = dots(x, w, range(40))
            for t in range(40):
                check_token(router, answer, t, logits[t], bias)
                count += 1
            assert answer.tie.any()
    given = Tensor("F32", np.array([[1.0, 2.0, np.nan], [3.0, 2.0, 1.0]], np.float32).view("<u4"))
    assert given_logits(given)[2].tolist() == [False, True]
    return count


def check_close():
    """Keys 1 - 2^-149 + 2^-149 against 1 - e^-300: apart by less than CLOSE, so compare()."""
    near = np.float32(149 * np.log(2))
    ulp = np.spacing(near)
    rows = [[near + n * ulp, 300, -5, -6, -7] for n in range(-8, 9)]
    logits = Tensor("F32", np.array(rows, np.float32).view("<u4"))
    bias = [2.0**-149, 0, 0, 0, 0]
    router = SmallRouter("sigmoid")
    router.top_k = 1
    total, exponent, finite = given_logits(logits)
    answer = certify(router, total, exponent, finite, bias)
    for t, row in enumerate(rows):
        check_token(router, answer, t, [Fraction(float(v)) for v in row], bias)
    assert {0, 1} == set(answer.ids[:, 0].tolist())  # the choice does turn within these rows
    return len(rows)


def check_layers(case, layers, rng, sample=1):
    """Real layers: all tokens against binary64, a few against Fraction and mpmath."""
    tokens = 0
    for x, (layer, phase, tensors) in zip(layers, case.layers()):
        a, k = x.answer, case.router.top_k
        bias = tensors["bias"].f64() if "bias" in tensors else None
        if "logits" in tensors:
            z = tensors["logits"].f64()
        else:
            z = tensors["hidden"].f64() @ tensors["gate"].f64().T
        z = z[a.finite]
        with np.errstate(over="ignore"):
            s = 1 / (1 + np.exp(-z)) if case.router.score == "sigmoid" else \
                np.exp(z - z.max(axis=1, keepdims=True))
        if case.router.score == "softmax":
            s /= s.sum(axis=1, keepdims=True)
        key = s if bias is None else s + bias
        assert np.abs(key - a.keys[a.finite]).max() < 1e-10
        order = np.argsort(-key, axis=1, kind="stable")[:, :k]
        clear = a.gap[a.finite] > 1e-9
        same = np.sort(order, axis=1) == np.sort(a.ids[a.finite], axis=1)
        assert same[clear].all()
        tokens += int(clear.sum())
        few = rng.choice(np.flatnonzero(a.finite), min(sample, int(a.finite.sum())), replace=False)
        # The smallest gap is the token that a mistake would hit first.
        few = set(few.tolist()) | {int(np.nanargmin(a.gap))}
        exact = {t: [Fraction(v) for v in tensors["logits"].f64()[t]] for t in few} \
            if "logits" in tensors else dots_of(tensors, few)
        listed = None if bias is None else bias.tolist()
        for t in few:
            check_token(case.router, a, t, exact[t], listed)
        if a.finite.all():  # otherwise an emulated row is not the token of that number
            for line, run in x.emulated.items():
                check_emulated(line, case.router, a, exact, listed, run, sorted(few)[:2])
    return tokens


def check_expect(case, layers):
    """The figures that a person wrote into the case file, to its decimals."""
    expect = case.json.get("expect", {})
    near = 0.5 * 10.0 ** -expect.get("decimals", 0) + 1e-12
    count = 0
    for x in layers:
        want = expect.get(str(x.layer), {})
        for key, found in (("topk_ids", x.answer.ids), ("topk_weights", x.answer.weights),
                           ("gap", x.answer.gap)):
            if key in want:
                error = np.abs(np.array(want[key], np.float64) - found).max()
                assert error <= (0 if key == "topk_ids" else near), (case.name, x.layer, key)
                count += 1
        for line, run in x.emulated.items():
            if line in want:
                assert run.ids.tolist() == want[line]["topk_ids"], (case.name, x.layer, line)
                count += 1
    return count


def dots_of(tensors, few):
    few = sorted(few)
    part = Tensor(tensors["hidden"].dtype, tensors["hidden"].bits[few])
    by_row = dots(part, tensors["gate"], range(len(few)))
    return {t: by_row[n] for n, t in enumerate(few)}


def synthetic():
    with mpmath.workdps(DIGITS):
        rng = np.random.default_rng(20260501)
        print(f"self-check: {check_dots(rng)} dots and {check_middles()} roundings by Fraction, "
              f"{check_ties(rng) + check_close()} tokens with ties and near ties by mpmath")


def real_layers(case, layers):
    with mpmath.workdps(DIGITS):
        tokens = check_layers(case, layers, np.random.default_rng(7))
        written = check_expect(case, layers)
    print(f"self-check: {case.name}: {tokens} tokens by binary64, a few of each layer by Fraction "
          f"and mpmath, {written} figures of its \"expect\"")


if __name__ == "__main__":
    synthetic()
    sys.exit(0)
