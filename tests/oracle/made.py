"""Cases made for the hard corners, written as case files that the program and the oracle both read:
exact ties, keys that part far behind binary64, wide exponents, every input type, NaN and Inf.
"""
import json
import os
import struct

import numpy as np

LAYOUT = {"F32": ("<f4", "<u4"), "F16": ("<f2", "<u2"), "BF16": (None, "<u2")}
NAMES = {"hidden": "all.model.layers.0.mlp.gate.input",
         "logits": "all.model.layers.0.mlp.gate.logits",
         "gate": "model.layers.0.mlp.gate.weight",
         "bias": "model.layers.0.mlp.gate.e_score_correction_bias"}


def bits_of(values, dtype):
    """Stored bits near the values (bf16: the upper half of fp32, which need not be the nearest)."""
    values = np.asarray(values, np.float64)
    if dtype == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    return values.astype(LAYOUT[dtype][0]).view(LAYOUT[dtype][1])


def write(folder, name, router, tensors):
    """tensors: {"hidden": (dtype, bits), ...}. The path of the case file."""
    header, data = {}, b""
    widest_first = sorted(tensors.items(), key=lambda item: -item[1][1].itemsize)
    for what, (dtype, bits) in widest_first:
        raw = np.ascontiguousarray(bits).tobytes()
        header[NAMES[what]] = {"dtype": dtype, "shape": list(bits.shape),
                               "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, name + ".safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    case = {"moeref_case": 1, "name": name, "about": "made by tests/oracle/made.py",
            "input": "logits" if "logits" in tensors else "hidden", "router": router,
            "checkpoint": [name + ".safetensors"],
            "capture": [name + ".safetensors"], "names": {k: NAMES[k] for k in tensors}}
    path = os.path.join(folder, name + ".json")
    with open(path, "w") as f:
        json.dump(case, f, indent=1)
    return path


def router(experts, top_k, hidden, score, bias, norm=True, scaling=2.5):
    made = {"experts": experts, "top_k": top_k, "score": score, "bias": bias, "n_group": 1,
            "topk_group": 1, "norm_topk_prob": norm, "routed_scaling_factor": scaling}
    return {**made, "hidden": hidden} if hidden else made


def spread(rng, shape, high, binades):
    """Values of random sign whose exponents are uniform over some binades below 2^high."""
    return rng.choice([-1, 1], shape) * np.exp2(high - rng.uniform(0, binades, shape))


def repeat_experts(gate):
    """The second half of the experts repeats the first; one of them differs in one bit."""
    bits = gate.copy()
    half = len(bits) // 2
    bits[half:2 * half] = bits[:half]
    bits[-1, 0] ^= 1
    return bits


def build(folder):
    """[(path, whether --json is compared too)]"""
    rng = np.random.default_rng(41)
    made = []

    def add(name, figures=True, **kinds):
        settings = kinds.pop("router")
        made.append((write(folder, name, settings, kinds), figures))

    def normal(dtype, *shape, size=1.0):
        return dtype, bits_of(rng.standard_normal(shape) * size, dtype)

    for score in ("sigmoid", "softmax"):
        # An odd top_k: the cut goes through a pair of equal experts.
        gate = repeat_experts(normal("BF16", 24, 96, size=0.2)[1])
        bias = {"bias": ("F32", bits_of(np.repeat([[0.5, 0.25, 0.125]], 8, 0).ravel(), "F32"))} \
            if score == "sigmoid" else {}
        add("made-ties-" + score, router=router(24, 5, 96, score, bool(bias)),
            hidden=normal("BF16", 64, 96), gate=("BF16", gate), **bias)

    wide = "F32", bits_of(spread(rng, (48, 80), 2, 60), "F32")
    add("made-wide-fp32", router=router(32, 4, 80, "sigmoid", True), hidden=wide,
        gate=("F32", bits_of(spread(rng, (32, 80), 0, 60), "F32")),
        bias=normal("F32", 32, size=0.01))
    add("made-fp16-by-bf16", router=router(32, 4, 80, "softmax", False, norm=False, scaling=1.7),
        hidden=normal("F16", 48, 80), gate=normal("BF16", 32, 80, size=0.1))
    # Logits near 2^-140: in fp32 nearly all keys are equal, exactly none is.
    add("made-tiny-logits", router=router(32, 4, 80, "sigmoid", False),
        hidden=normal("BF16", 48, 80, size=2.0**-120), gate=normal("BF16", 32, 80, size=2.0**-20))
    for kind in ("F32", "BF16"):
        add(f"made-large-bias-{kind.lower()}", router=router(96, 8, 512, "sigmoid", True),
            hidden=normal("BF16", 96, 512), gate=normal("BF16", 96, 512, size=0.04),
            bias=(kind, bits_of(rng.uniform(11.54, 11.96, 96), kind)))

    hidden = normal("BF16", 12, 64)[1]
    hidden[[1, 4, 7], [0, 63, 30]] = [0x7fc0, 0x7f80, 0xff80]  # NaN, Inf, -Inf
    add("made-nonfinite", figures=False, router=router(16, 3, 64, "sigmoid", True),
        hidden=("BF16", hidden), gate=normal("BF16", 16, 64, size=0.1),
        bias=normal("F32", 16, size=0.1))

    for kind in ("F32", "BF16", "F16"):  # bf16 logits tie often
        add(f"made-logits-{kind.lower()}", logits=normal(kind, 128, 256, size=1.5),
            router=router(256, 8, 0, "softmax", False, scaling=1.0))
    add("made-softmax-bias", router=router(64, 6, 0, "softmax", True, scaling=1.0),
        logits=normal("BF16", 64, 64), bias=("F32", bits_of(np.repeat([0, 2.0**-6], 32), "F32")))

    # 1 - e^-x + 2^-149 against 1 - e^-300: the choice turns where e^-x = 2^-149 (mpfr at 192 bits).
    near = np.float32(149 * np.log(2))
    rows = [[near + n * np.spacing(near), 300, -5, -6, -7] for n in range(-8, 9)]
    add("made-close-keys", router=router(5, 1, 0, "sigmoid", True),
        logits=("F32", bits_of(rows, "F32")),
        bias=("F32", bits_of([2.0**-149, 0, 0, 0, 0], "F32")))
    return made
