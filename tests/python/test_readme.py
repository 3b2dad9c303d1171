"""The lines of tools/python/README.md, as they stand there and in the README above: a sound kernel passes,
faulty ones do not."""
import os
import re
import sys
import types

import numpy as np

from support import ROOT, refused


def text():
    with open(os.path.join(ROOT, "tools", "python", "README.md")) as f:
        return f.read()


def lines():
    (block,) = re.findall(r"```python\n(.*?)```", text(), re.S)
    return block


def test_both_readmes_have_the_same_lines():
    with open(os.path.join(ROOT, "README.md")) as f:
        assert f"```python\n{lines()}```" in f.read()


def run(kernel):
    """The test of the README with this kernel in place of the user's."""
    module = types.ModuleType("my_kernels")
    module.router_topk = kernel
    sys.modules["my_kernels"] = module
    try:
        names = {}
        exec(compile(lines(), "README.md", "exec"), names)
        tests = [f for name, f in names.items() if name.startswith("test_")]
        assert len(tests) == 1
        tests[0]()
    finally:
        del sys.modules["my_kernels"]


def sound(hidden, gate, bias, top_k, scaling, order=lambda key: np.argsort(-key, 1)):
    scores = 1 / (1 + np.exp(-(hidden @ gate.T)))
    ids = order(scores + bias)[:, :top_k]
    weights = np.take_along_axis(scores, ids, 1)
    return ids, weights / weights.sum(1, keepdims=True) * np.float32(scaling)


def test_lines():
    assert len(lines().splitlines()) <= 15
    run(sound)


def test_message_shown():
    (shown,) = re.findall(r"```\nAssertionError: (.*?)  \.\.\. four more", text(), re.S)
    with refused(shown, error=AssertionError):
        run(lambda hidden, gate, bias, **more: sound(hidden, gate, 0 * bias, **more))


def test_lines_with_faulty_kernels():
    def without_bias(hidden, gate, bias, **more):
        return sound(hidden, gate, 0 * bias, **more)

    def scaled_twice(*arrays, **more):
        ids, weights = sound(*arrays, **more)
        return ids, weights * np.float32(2.5)

    def second_best(*arrays, **more):
        return sound(*arrays, **more, order=lambda key: np.argsort(-key, 1)[:, 1:])

    for mutant in (without_bias, scaled_twice, second_best):
        with refused("256 rows fail", "wrong: ", error=AssertionError):
            run(mutant)
