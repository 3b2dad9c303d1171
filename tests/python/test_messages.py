"""Kernels with faults are caught, and the message says where and what."""
import numpy as np

import moeref
from support import ROUTER, kernel, problem, refused

HIDDEN, GATE, BIAS = problem(tokens=200)
IDS, WEIGHTS = kernel(HIDDEN, GATE, BIAS)


def judge(ids=IDS, weights=WEIGHTS, **more):
    return moeref.assert_routing(HIDDEN, GATE, ROUTER, ids, weights, bias=BIAS, **more)


def bf16(values):
    """To nearest, ties to even, as binary32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def test_sound_kernel():
    found = judge()
    assert found.ok and found.failures == 0 and found.rows == 200
    assert found.counts["exact"] + found.counts["rounding"] == 200
    assert found.verdicts.shape == (200,) and found.verdicts.dtype == np.uint8
    assert judge(weights=None).ok
    right = moeref.route(HIDDEN, GATE, ROUTER, bias=BIAS)
    assert (np.sort(right.ids, 1) == np.sort(IDS, 1)).all(1).mean() > 0.98


def test_mutant_without_bias():
    mutant = kernel(HIDDEN, GATE, 0 * BIAS)
    truth = moeref.route(HIDDEN, GATE, ROUTER, bias=BIAS)
    with refused("rows fail", "token ", "wrong: expert ", "left out for expert ", "difference ",
                 "radius ", "gap at the cut ", "expected [", "observed [", "more",
                 "fp32 (nothing is declared)", error=AssertionError):
        judge(*mutant)
    found = moeref.verify(HIDDEN, GATE, ROUTER, *mutant, bias=BIAS, worst=1000)
    for one in found.worst:
        if one.cause != "set":
            continue
        assert one.expected == tuple(truth.ids[one.token])
        assert one.observed == tuple(mutant[0][one.token])
        assert one.omitted in one.expected and one.included in one.observed
        assert one.difference > one.radius > 0 and one.gap > 0
        assert one.certificate == truth.certificate_name(one.token)


def test_each_fault_by_name():
    def changed(row, ids=None, weights=None):
        i, w = IDS.copy(), WEIGHTS.copy()
        if ids is not None:
            i[row] = ids
        if weights is not None:
            w[row] = weights
        return i, w

    w = WEIGHTS[17]
    faults = [
        (changed(17, ids=[3, 4, 3, 5]), "malformed", "expert 3 a second time"),
        (changed(17, ids=[3, 4, 32, 5]), "malformed", "id 32 is no expert"),
        (changed(17, ids=[-1, -1, -1, -1]), "malformed", "id -1 is no expert"),
        (changed(17, weights=[w[0], np.nan, w[2], w[3]]), "nonfinite", "has weight nan"),
        (changed(17, weights=w * np.float32(1.01)), "wrong", "more than the radius"),
        (changed(17, weights=w[::-1]), "malformed", "which is that of expert"),
    ]
    for arrays, verdict, words in faults:
        with refused("1 of 200 rows fail", f"token 17: {verdict}: ", words,
                     f"observed {[int(e) for e in arrays[0][17]]}", error=AssertionError):
            judge(*arrays)


def test_declared_arithmetic():
    """Logits rounded to bf16: wrong where nothing is declared, rounding where they are declared,
    and a failure again in strict tests."""
    scores = 1 / (1 + np.exp(-bf16(HIDDEN @ GATE.T)))
    ids = np.argsort(-(scores + BIAS), axis=1, kind="stable")[:, :4].astype(np.int64)
    with refused("wrong", error=AssertionError):
        judge(ids, None)
    found = judge(ids, None, arith="bf16-logits")
    assert found.counts["rounding"] > 0 and found.ok
    with refused("(strict)", "rounding: expert", "bf16-logits", "within the radius",
                 error=AssertionError):
        judge(ids, None, arith="bf16-logits", strict=True)


def test_logits_beside_hidden():
    logits = HIDDEN @ GATE.T
    assert judge(logits=logits).logit_counts["exact"] == 200
    logits[5, 7] += 1
    with refused("1 of 400 rows fail", "logits: 1 wrong", "token 5: wrong: logit of expert 7",
                 error=AssertionError):
        judge(logits=logits)
    only = moeref.verify(HIDDEN, GATE, ROUTER, bias=BIAS, logits=logits)
    assert only.counts is None and only.logit_counts["wrong"] == 1 and not only.ok


def test_top_k_kernel_from_logits():
    logits = (HIDDEN @ GATE.T).astype(np.float16)
    scores = 1 / (1 + np.exp(-logits.astype(np.float32)))
    ids = np.argsort(-(scores + BIAS), axis=1, kind="stable")[:, :4]
    assert moeref.assert_routing(router=ROUTER, logits=logits, topk_ids=ids, bias=BIAS).ok
    ids[0, 0] = (ids[0, 0] + 1) % 32 if (ids[0, 0] + 1) % 32 not in ids[0] else ids[0, 1]
    with refused("token 0", "logits as given", error=AssertionError):
        moeref.assert_routing(router=ROUTER, logits=logits, topk_ids=ids, bias=BIAS)


def test_rows_and_padding():
    index = np.array([5, 5, 199, 0])
    found = judge(IDS[index], WEIGHTS[index], token_index=index)
    assert found.rows == 4
    padded = IDS.copy()
    padded[150:] = -1
    found = judge(padded, None, non_padded=150)
    assert np.all(found.verdicts[150:] == 255) and np.all(found.verdicts[:150] != 255)
    assert sum(found.counts.values()) == 150
    padded[160, 2] = 3
    with refused("row 160 is padding", error=AssertionError):
        judge(padded, None, non_padded=150)


def test_promised_order():
    shuffled = np.ascontiguousarray(IDS[:, ::-1])
    assert judge(shuffled, None).ok
    with refused("stands behind", error=AssertionError):
        judge(shuffled, None, profile="sglang")


def test_non_finite_rows():
    hidden = HIDDEN.copy()
    hidden[9, 3] = np.nan
    with refused("hidden[9, 3] is NaN", "allow_nonfinite"):
        moeref.assert_routing(hidden, GATE, ROUTER, IDS, bias=BIAS)
    found = moeref.assert_routing(hidden, GATE, ROUTER, IDS, bias=BIAS, allow_nonfinite=True)
    assert found.counts["undecided"] == 1 and found.worst[0].token == 9
    assert found.worst[0].expected == (-1,) * 4 and found.worst[0].gap is None
    with refused("token 9: undecided: ", "gap at the cut not known", error=AssertionError):
        moeref.assert_routing(hidden, GATE, ROUTER, IDS, bias=BIAS, allow_nonfinite=True,
                              strict=True)


def test_nothing_to_judge():
    with refused("no rows"):
        moeref.assert_routing(HIDDEN[:0], GATE, ROUTER, IDS[:0], bias=BIAS)
    assert moeref.verify(HIDDEN[:0], GATE, ROUTER, IDS[:0], bias=BIAS).rows == 0
    assert moeref.route(HIDDEN[:0], GATE, ROUTER, bias=BIAS).ids.shape == (0, 4)
