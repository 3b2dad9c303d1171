"""Tensors of torch, where it is installed."""
import numpy as np

import moeref
from support import ROUTER, kernel, need, problem, refused

HIDDEN, GATE, BIAS = problem(tokens=40)


def tensors():
    torch = need("torch")
    return torch, torch.from_numpy(HIDDEN), torch.from_numpy(GATE), torch.from_numpy(BIAS)


def test_tensors_as_arrays():
    torch, hidden, gate, bias = tensors()
    want = moeref.route(HIDDEN, GATE, ROUTER, bias=BIAS)
    got = moeref.route(hidden, torch.nn.Parameter(gate), ROUTER, bias=BIAS)
    assert np.array_equal(want.ids, got.ids) and np.array_equal(want.gap, got.gap)
    # A view that negates when it is read: its memory alone would say something else.
    got = moeref.route(torch._neg_view(-hidden), gate, ROUTER, bias=bias)
    assert np.array_equal(want.ids, got.ids) and np.array_equal(want.gap, got.gap)
    got = moeref.route(hidden.T.contiguous().T, gate, ROUTER, bias=bias)
    assert np.array_equal(want.ids, got.ids) and np.array_equal(want.gap, got.gap)


def test_bfloat16():
    torch, hidden, gate, bias = tensors()
    hidden, gate = hidden.bfloat16(), gate.bfloat16()
    scores = (hidden.float() @ gate.float().T).sigmoid()
    ids = torch.topk(scores + bias, 4).indices
    weights = scores.gather(1, ids)
    weights = weights / weights.sum(1, keepdim=True) * 2.5
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        assert moeref.assert_routing(hidden, gate, ROUTER, ids, weights.to(dtype), bias=bias).ok
    assert moeref.assert_routing(hidden, gate, ROUTER, ids.int(), weights, bias=bias,
                                 logits=hidden.float() @ gate.float().T).ok
    wrong = ids.clone()
    wrong[3, 0] = (set(range(32)) - set(ids[3].tolist())).pop()
    with refused("token 3: wrong", error=AssertionError):
        moeref.assert_routing(hidden, gate, ROUTER, wrong, bias=bias)


def test_refused():
    torch, hidden, gate, bias = tensors()
    table = [
        (hidden.double(), "found F64"), (hidden.to("meta"), "no data"),
        (hidden.to_sparse(), "dense"), (hidden.to(torch.complex64), "found complex64"),
        (hidden[0], "found [96]"), (hidden.to(torch.float8_e4m3fn), "found float8_e4m3fn"),
    ]
    for wrong, words in table:
        with refused(words):
            moeref.route(wrong, gate, ROUTER, bias=bias)
    assert moeref.route(hidden[:0], gate, ROUTER, bias=bias).ids.shape == (0, 4)


def test_gpu():
    torch, hidden, gate, bias = tensors()
    if not torch.cuda.is_available():
        need("a_gpu_that_torch_can_use")
    ids, weights = (torch.from_numpy(a).cuda() for a in kernel(HIDDEN, GATE, BIAS))
    assert moeref.assert_routing(hidden.cuda(), gate.cuda(), ROUTER, ids, weights,
                                 bias=bias.cuda()).ok
