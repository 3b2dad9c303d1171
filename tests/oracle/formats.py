"""Small floating-point formats: significands and exponents of stored bits, and one rounding RNE.

Sources: IEEE 754-2019 section 3; bf16 is binary32 with 7 fraction bits.
"""
import numpy as np

# name: (significand bits with the hidden one, emin, emax) as in IEEE 754
FORMATS = {"fp32": (24, -126, 127), "bf16": (8, -126, 127), "fp16": (11, -14, 15)}
DTYPES = {"F32": ("fp32", 32), "BF16": ("bf16", 16), "F16": ("fp16", 16)}


def split(tensor):
    """(m, e, finite): value = m * 2^e with integer m, exact; m = 0 where not finite."""
    name, width = DTYPES[tensor.dtype]
    p, emin, emax = FORMATS[name]
    bits = tensor.bits.astype(np.int64)
    field = (bits >> (p - 1)) & ((1 << (width - p)) - 1)
    fraction = bits & ((1 << (p - 1)) - 1)
    finite = field != (1 << (width - p)) - 1
    m = np.where(field > 0, fraction | (1 << (p - 1)), fraction)
    m = np.where((bits >> (width - 1)) & 1, -m, m)
    e = np.maximum(field, 1) - emax - (p - 1)
    return np.where(finite, m, 0), e, finite


def round_to(x, name):
    """Binary64 values rounded once to a format, RNE, subnormals kept; values as binary64.

    ldexp by a power of two and rint are exact, so the only rounding is rint's."""
    p, emin, emax = FORMATS[name]
    x = np.asarray(x, np.float64)
    exponent = np.maximum(np.frexp(x)[1] - 1, emin) - (p - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        y = np.ldexp(np.rint(np.ldexp(x, -exponent)), exponent)
    return np.where(np.abs(y) >= np.ldexp(1.0, emax + 1), np.copysign(np.inf, x), y)


def odd_f64(integers, exponent):
    """integers * 2^exponent rounded to odd in binary64: what is rounded again to at most 51 bits
    then has the bits of one rounding (Boldo and Melquiond 2008, theorem 2).

    integers: object array of Python ints. The result must be normal in binary64."""
    nearest = np.array([float(v) for v in integers.ravel()]).reshape(integers.shape)
    rest = np.array([(v > int(f)) - (v < int(f))
                     for v, f in zip(integers.ravel(), nearest.ravel())]).reshape(integers.shape)
    even = (np.abs(nearest).view(np.uint64) & 1) == 0
    moved = np.nextafter(nearest, np.where(rest > 0, np.inf, -np.inf))
    odd = np.where((rest != 0) & even, moved, nearest)
    scaled = np.ldexp(odd, exponent)
    size = np.abs(scaled[odd != 0])
    assert size.size == 0 or (size.min() >= 2.0**-1022 and size.max() < np.inf)
    return scaled
