"""verify and assert_routing: a kernel's answer, judged."""
import json
import operator
from ctypes import byref, c_void_p
from dataclasses import dataclass

import numpy as np

from ._arrays import borrow, hand_over
from ._library import (VERDICTS, Handle, call, library, take_text,
                       threads as threads_of)
from ._message import failure_message
from ._route import address, check_flag, check_router

FAILS = ("malformed", "nonfinite", "wrong")
FAILS_STRICTLY = FAILS + ("undecided", "rounding")


@dataclass(frozen=True)
class Finding:
    """One row that is not exact. omitted, included: experts (cause "group": groups); difference: of
    their exact keys, or found minus expected; radius: how large rounding lets that be."""
    source: str   # "topk", or "gate_logits"
    row: int
    token: int
    verdict: str
    cause: str
    why: str      # a sentence
    omitted: "int | None"
    included: "int | None"
    difference: "float | None"
    radius: "float | None"
    slot: "int | None"
    gap: "float | None"
    certificate: str
    expected: tuple  # certified ids, in descending key; -1: not known
    observed: tuple  # the kernel's; -1 for logits


@dataclass(frozen=True, eq=False)
class Verification:
    """Verdicts, and the worst rows. counts and verdicts are of topk_ids with topk_weights;
    logit_counts and logit_verdicts of logits that were judged beside hidden; None where there was
    nothing to judge."""
    rows: int
    counts: "dict | None"                 # verdict -> rows
    logit_counts: "dict | None"
    verdicts: "np.ndarray | None"         # uint8 [rows], an index into moeref.VERDICTS; padding 255
    logit_verdicts: "np.ndarray | None"
    worst: tuple                          # of Finding, worst first
    worst_omitted: int                    # so many more
    arith: str                            # what the radius was made of
    strict: bool
    json: dict                            # as `moeref verify --json` writes it

    @property
    def failures(self):
        """Rows that fail: malformed, nonfinite, wrong; if strict, undecided and rounding too."""
        fails = FAILS_STRICTLY if self.strict else FAILS
        return sum(counts[v] for counts in (self.counts, self.logit_counts) if counts
                   for v in fails)

    @property
    def ok(self):
        return self.failures == 0


def _count(verdicts):
    if verdicts is None:
        return None
    return {name: int(np.count_nonzero(verdicts == code)) for code, name in enumerate(VERDICTS)}


def _number(name, value):
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number < 2**63:
        raise ValueError(f"{name}: expected a number of rows, found {str(value)[:40]}")
    return number


def _line(name, value):
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name}: expected a string, found {type(value).__name__}")
    return value


def _finding(found):
    return Finding(*(tuple(found[name]) if name in ("expected", "observed") else found[name]
                     for name in Finding.__dataclass_fields__))


def verify(hidden=None, gate_weight=None, router=None, topk_ids=None, topk_weights=None, *,
           logits=None, bias=None, gate_bias=None, token_index=None, arith=None, profile=None,
           non_padded=None, strict=False, dtype=None, without_blas=False, allow_nonfinite=False,
           worst=100, threads=0):
    """Judges topk_ids [rows, top_k] (integers) and topk_weights [rows, top_k] (float32, bfloat16,
    float16) against hidden, gate_weight, bias and gate_bias as for route.
    logits: without hidden and gate_weight the input, exact by definition, for kernels that take
    logits; beside hidden the logits that the kernel gave, judged too.
    arith: what the kernel may round, as "bf16-logits+bf16-weights" ('moeref help route' lists the
    words); None: nothing is declared, sums are fp32 in any order or a tensor core's.
    profile: an engine ("sglang", "vllm", "hf" ...) that promises an order of ids; None: any order.
    token_index [rows] (int64): which token a row is of; without it row i is token i.
    non_padded: rows from there on are padding, whose ids must be -1.
    strict, worst: what Verification.failures counts; how many findings to list.
    Returns a Verification; ValueError says what is wrong with an input."""
    options = {"strict": check_flag("strict", strict), "worst": _number("worst", worst),
               "without_blas": check_flag("without_blas", without_blas),
               "allow_nonfinite": check_flag("allow_nonfinite", allow_nonfinite),
               "arith": _line("arith", arith), "profile": _line("profile", profile),
               "threads": threads_of(threads)}
    if non_padded is not None:
        options["non_padded"] = _number("non_padded", non_padded)
    given = hidden is None and gate_weight is None
    taken = borrow({"hidden": hidden, "gate": gate_weight, "bias": bias, "gate_bias": gate_bias,
                    "logits" if given else "gate_logits": logits, "topk_ids": topk_ids,
                    "topk_weights": topk_weights, "token_index": token_index}, dtype)
    judged = {one.name: one.shape for one in taken if one.name in ("topk_ids", "gate_logits")}
    check_router(router)
    text = c_void_p()
    with router.open() as r, \
            Handle(library.mr_api_input_new, library.mr_api_input_free, r) as handle:
        hand_over(handle, taken)
        rows = next(iter(judged.values()))[0] if judged else 0
        ids, of_logits = (np.empty(rows, np.uint8) if name in judged else None
                          for name in ("topk_ids", "gate_logits"))
        call(library.mr_api_verify, handle, json.dumps(options).encode(), rows, address(ids),
             address(of_logits), byref(text))
    said = take_text(text.value)
    return Verification(rows, _count(ids), _count(of_logits), ids, of_logits,
                        tuple(_finding(found) for found in said["worst"]), said["worst_omitted"],
                        said["arith"], strict, said)


def assert_routing(hidden=None, gate_weight=None, router=None, topk_ids=None, topk_weights=None, *,
                   strict=False, show=5, **more):
    """verify, for tests: AssertionError if a row is malformed, nonfinite or wrong, or, if strict,
    undecided or another choice that rounding explains. The message names the `show` worst of them.
    Arguments as for verify. Returns the Verification."""
    __tracebackhide__ = True
    show = _number("show", show)
    more.setdefault("worst", show)
    found = verify(hidden, gate_weight, router, topk_ids, topk_weights, strict=strict, **more)
    if found.rows == 0:
        raise ValueError("there are no rows to judge: a test of nothing would pass")
    if not found.ok:
        raise AssertionError(failure_message(found, show, FAILS_STRICTLY if strict else FAILS))
    return found
