"""What is refused, in one line; what is taken, in whatever layout; and never a crash."""
import random
import subprocess
import sys

import numpy as np

import moeref
from support import ROUTER, kernel, need, problem, refused

HIDDEN, GATE, BIAS = problem(tokens=40)
IDS, WEIGHTS = kernel(HIDDEN, GATE, BIAS)
GOOD = {"hidden": HIDDEN, "gate_weight": GATE, "router": ROUTER, "bias": BIAS}


def same(a, b):
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("ids", "weights", "gap"))


def test_route_refuses():
    class Odd:
        def __array__(self, *_):
            raise RuntimeError("no\narray")

    table = [
        ({"hidden": None}, "expected hidden"),
        ({"hidden": None, "gate_weight": None}, "expected hidden and gate, or logits"),
        ({"logits": HIDDEN}, "logits: expected shape [tokens, 32], found [40, 96]"),
        ({"logits": np.zeros((40, 32), np.float32)}, "exclude each other"),
        ({"hidden": HIDDEN.astype(np.float64)}, "hidden: expected dtype one of BF16 F16 F32"),
        ({"hidden": HIDDEN.astype(np.int32)}, "found I32"),
        ({"hidden": HIDDEN.astype(complex)}, "found complex128"),
        ({"hidden": HIDDEN > 0}, "found BOOL"),
        ({"hidden": HIDDEN[0]}, "hidden: expected shape [tokens, hidden], found [96]"),
        ({"hidden": np.float32(3)}, "found []"),
        ({"hidden": HIDDEN[None]}, "found [1, 40, 96]"),
        ({"hidden": np.zeros((1,) * 12, np.float32)}, "..."),
        ({"hidden": HIDDEN[:, :0]}, "expected shape"),
        ({"hidden": HIDDEN[:, 1:]}, "hidden has 95 columns, gate 96"),
        ({"hidden": "hello"}, "hidden"),
        ({"hidden": [[1.0, 2.0], [3.0]]}, "no array can be made"),
        ({"hidden": np.array([[None]])}, "object"),
        ({"hidden": {"a": 1}}, "hidden"),
        ({"hidden": Odd()}, "hidden"),
        ({"hidden": np.ma.masked_array(HIDDEN, HIDDEN > 0)}, "masked"),
        ({"hidden": np.zeros((4, 96), np.uint16)}, 'dtype="bf16"'),
        ({"hidden": np.zeros(4, "datetime64[s]")}, "datetime64"),
        ({"hidden": np.zeros(4, [("a", "f4")])}, "hidden"),
        ({"dtype": "bf16"}, "there is none"),
        ({"dtype": "fp8"}, "dtype"),
        ({"dtype": 3}, "dtype"),
        ({"gate_weight": GATE.T}, "gate: expected shape [32, hidden], found [96, 32]"),
        ({"gate_weight": np.where(GATE == GATE[3, 4], np.nan, GATE)}, "NaN"),
        ({"bias": None}, "expected bias"),
        ({"bias": BIAS[:-1]}, "bias: expected shape [32], found [31]"),
        ({"bias": BIAS * np.inf}, "bias"),
        ({"gate_bias": BIAS}, "gate_bias: the router has none"),
        ({"router": None}, "router: expected a moeref.Router"),
        ({"router": {"experts": 32}}, "router"),
        ({"threads": -1}, "threads"), ({"threads": 1.0}, "threads"), ({"threads": True}, "threads"),
        ({"threads": 10**9}, "threads"),
        ({"exact_weights": 1}, "exact_weights"), ({"allow_nonfinite": None}, "allow_nonfinite"),
    ]
    for change, words in table:
        with refused(words):
            moeref.route(**{**GOOD, **change})


def test_verify_refuses():
    table = [
        ({"topk_ids": None}, "expected topk_ids or gate_logits"),
        ({"topk_ids": None, "topk_weights": WEIGHTS}, "topk_weights of which experts"),
        ({"topk_ids": IDS.astype(np.float32)}, "topk_ids: expected dtype one of I32 I64"),
        ({"topk_ids": IDS.astype(np.int16)}, "found I16"),
        ({"topk_ids": IDS[:, :3]}, "topk_ids: expected shape [rows, 4], found [40, 3]"),
        ({"topk_ids": IDS[:39]}, "39 rows for 40 tokens"),
        ({"topk_ids": np.vstack([IDS, IDS])}, "80 rows for 40 tokens"),
        ({"topk_ids": IDS.ravel()}, "found [160]"),
        ({"topk_weights": WEIGHTS[:39]}, "topk_weights: expected shape [40, 4], found [39, 4]"),
        ({"topk_weights": IDS}, "topk_weights: expected dtype"),
        ({"token_index": np.arange(39)}, "token_index"),
        ({"token_index": np.arange(40) + 1}, "token 40"),
        ({"token_index": np.arange(40) - 1}, "token -1"),
        ({"token_index": np.arange(40, dtype=np.int32)}, "expected dtype I64"),
        ({"logits": np.zeros((40, 31), np.float32)}, "gate_logits: expected shape"),
        ({"arith": "bf15-logits"}, "bf15-logits"), ({"arith": 3}, "arith"), ({"arith": ""}, "arith"),
        ({"arith": "a\0b"}, "options"), ({"arith": "x" * 10000}, "x"),
        ({"profile": "none-such"}, "none-such"), ({"profile": 1}, "profile"),
        ({"non_padded": -1}, "non_padded"), ({"non_padded": "3"}, "non_padded"),
        ({"worst": -1}, "worst"), ({"worst": 10**7}, "worst"), ({"worst": 10**30}, "worst"),
        ({"strict": "no"}, "strict"),
    ]
    good = {**GOOD, "topk_ids": IDS}
    for change, words in table:
        with refused(words):
            moeref.verify(**{**good, **change})
        with refused(words):
            moeref.assert_routing(**{**good, **change})
    with refused("show"):
        moeref.assert_routing(**good, show=-1)
    with refused("gate_bias belongs to hidden"):
        moeref.verify(router=ROUTER, logits=np.zeros((40, 32), np.float32), bias=BIAS,
                      gate_bias=BIAS, topk_ids=IDS)


def test_router_refuses():
    good = {"experts": 32, "top_k": 4, "score": "sigmoid", "norm_topk_prob": True}
    table = [
        ({"top_k": 33}, "top_k from 1 to experts = 32, found 33"), ({"top_k": 0}, "top_k"),
        ({"experts": -1}, "experts"), ({"experts": 2**40}, "experts"), ({"experts": "32"}, "experts"),
        ({"experts": 32.0}, "experts"), ({"experts": True}, "experts"),
        ({"score": "tanh"}, "tanh"), ({"score": None}, "score"), ({"score": 1}, "score"),
        ({"bias": BIAS}, "bias: expected True or False (the values go to route and verify)"),
        ({"n_group": 4}, "group_score"), ({"n_group": 5, "group_score": "max"}, "divides"),
        ({"n_group": 4, "topk_group": 5, "group_score": "max"}, "topk_group"),
        ({"n_group": 32, "group_score": "top2_sum", "topk_group": 32}, "one expert a group"),
        ({"routed_scaling_factor": float("nan")}, "routed_scaling_factor"),
        ({"routed_scaling_factor": "1"}, "routed_scaling_factor"),
        ({"selection": "logit", "bias": True}, "bias"), ({"norm_topk_prob": 1}, "norm_topk_prob"),
    ]
    for change, words in table:
        with refused(words):
            moeref.Router(**{**good, **change})
    with refused("no such figure: topk"):
        moeref.Router.from_config("config.json", topk=3)
    with refused("none-such.json", error=OSError):
        moeref.Router.from_config("none-such.json")
    numpy_ints = moeref.Router(**{**good, "experts": np.int64(32), "norm_topk_prob": np.True_})
    assert numpy_ints == moeref.Router(**good) and hash(numpy_ints) == hash(moeref.Router(**good))


def test_layouts():
    """Any strides, offsets and byte orders give the same bytes."""
    want = moeref.route(**GOOD)
    wide = np.zeros((80, 200), np.float32)
    wide[::2, 3:195:2] = HIDDEN
    raw = np.zeros(GATE.nbytes + 1, np.uint8)
    odd = raw[1:].view(np.uint8)
    odd[:] = GATE.view(np.uint8).ravel()
    for hidden in (np.asfortranarray(HIDDEN), wide[::2, 3:195:2], HIDDEN[::-1][::-1],
                   HIDDEN.astype(">f4"), np.broadcast_to(HIDDEN, (1, 40, 96))[0]):
        assert same(want, moeref.route(**{**GOOD, "hidden": hidden}))
    unaligned = np.frombuffer(raw, np.float32, count=GATE.size, offset=1).reshape(GATE.shape)
    assert same(want, moeref.route(**{**GOOD, "gate_weight": unaligned}))
    readonly = HIDDEN.copy()
    readonly.flags.writeable = False
    assert same(want, moeref.route(**{**GOOD, "hidden": readonly}))
    assert moeref.assert_routing(**GOOD, topk_ids=IDS.tolist()).ok
    for kind in (np.int64, np.uint32, np.uint16, np.uint8):
        assert moeref.assert_routing(**GOOD, topk_ids=IDS.astype(kind)).ok
    assert moeref.assert_routing(**GOOD, topk_ids=IDS, topk_weights=WEIGHTS.astype(np.float64)).ok


def test_types_and_words():
    """bfloat16 as uint16, and as ml_dtypes has it; float16; inputs are not written."""
    bits = (HIDDEN.view(np.uint32) >> 16).astype(np.uint16)
    gate = (GATE.view(np.uint32) >> 16).astype(np.uint16)
    rounded = [(b.astype(np.uint32) << 16).view(np.float32) for b in (bits, gate)]
    want = moeref.route(*rounded, ROUTER, bias=BIAS)
    before = bits.copy()
    assert same(want, moeref.route(bits, gate, ROUTER, bias=BIAS, dtype="bf16"))
    assert np.array_equal(before, bits)
    half = moeref.route(HIDDEN.astype(np.float16), GATE.astype(np.float16), ROUTER, bias=BIAS)
    assert same(half, moeref.route(HIDDEN.astype(np.float16).view(np.uint16),
                                   GATE.astype(np.float16), ROUTER, bias=BIAS, dtype="fp16"))
    bfloat16 = need("ml_dtypes").bfloat16
    assert same(want, moeref.route(bits.view(bfloat16), gate.view(bfloat16), ROUTER, bias=BIAS))


def test_nonsense_is_refused_or_answered():
    """Random arrays in place of right ones: a ValueError or an answer, and this process lives."""
    rng, answered = random.Random(5), 0
    kinds = [np.float32, np.float16, np.float64, np.int32, np.int64, np.uint16, np.uint8, bool]
    for _ in range(400):
        call = {**GOOD, "topk_ids": IDS, "topk_weights": WEIGHTS, "allow_nonfinite": True}
        for name in rng.sample(sorted(set(call) - {"router", "allow_nonfinite"}), rng.choice([1, 2])):
            shape = [rng.choice([0, 1, 4, 32, 40, 96]) for _ in range(rng.choice([0, 1, 2, 2, 2, 3]))]
            shape = getattr(call[name], "shape", shape) if rng.random() < 0.5 else shape
            junk = np.frombuffer(rng.randbytes(8 * int(np.prod(shape)) + 8), np.uint8)
            kind = np.dtype(rng.choice(kinds))
            count = int(np.prod(shape))
            call[name] = junk[:count * kind.itemsize].view(kind).reshape(shape) \
                if kind != bool else junk[:count].reshape(shape) > 9
        try:
            moeref.verify(**call)
            answered += 1
        except ValueError as why:
            assert "\n" not in str(why)
    assert 20 < answered < 380, answered


def test_torch_is_not_imported():
    code = "import sys, moeref; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={
        **__import__("os").environ, "PYTHONPATH": ":".join(p for p in sys.path if p)}).returncode == 0
