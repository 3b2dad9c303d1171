"""route: which experts are right."""
import json
from ctypes import byref, c_void_p
from dataclasses import dataclass

import numpy as np

from ._arrays import borrow, hand_over
from ._library import CERTIFICATES, Handle, call, library, take_text, threads as threads_of
from ._router import Router


@dataclass(frozen=True)
class Tie:
    """Exactly equal keys at the cut: any `slots` of `experts` are right. Of groups, the same."""
    token: int
    slots: int
    experts: tuple
    group_slots: int
    groups: tuple


@dataclass(frozen=True, eq=False)
class Routing:
    """What is right, by token. gap: key of the last expert selected minus key of the first rejected
    (with groups: inside those that stay), +Inf where none is, and gap_radius the error bound of this
    figure; group_gap: the same of the groups. ids are in descending key, equal keys by lowest id; -1,
    with weights and gaps NaN, where the input is not finite. weights are within 4 ulp."""
    ids: np.ndarray               # int32   [tokens, top_k]
    weights: np.ndarray           # float64 [tokens, top_k]
    gap: np.ndarray               # float64 [tokens]
    gap_radius: np.ndarray        # float64 [tokens]
    group_gap: np.ndarray         # float64 [tokens]
    group_gap_radius: np.ndarray  # float64 [tokens]
    certificate: np.ndarray       # uint8   [tokens], an index into moeref.CERTIFICATES
    ties: tuple                   # of Tie, by token; at most 10,000, and
    ties_omitted: int             # so many more
    certified: dict               # certificate's name -> tokens

    def certificate_name(self, token):
        return CERTIFICATES[self.certificate[token]]


def check_router(router):
    if not isinstance(router, Router):
        raise ValueError(f"router: expected a moeref.Router, found {type(router).__name__}")
    return router


def check_flag(name, value):
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected True or False, found {value!r}")
    return value


def tokens_of(taken):
    """From what routing starts with; the library checks the rest."""
    for one in taken:
        if one.name in ("hidden", "logits") and len(one.shape) == 2:
            return one.shape[0]
    return 0


def address(array):
    return None if array is None else array.ctypes.data


def route(hidden=None, gate_weight=None, router=None, *, bias=None, gate_bias=None, logits=None,
          dtype=None, exact_weights=False, without_blas=False, allow_nonfinite=False, threads=0):
    """Certified routing of hidden [tokens, hidden] and gate_weight [experts, hidden], or of logits
    [tokens, experts], which are then exact by definition; bfloat16, float16 or float32. bias:
    correction bias [experts]; gate_bias: linear bias of the gate [experts]; both if, and only if,
    the router has one. dtype="bf16": arrays of uint16 hold the bits of bfloat16.
    exact_weights: correctly rounded. without_blas: every logit exact, slow. allow_nonfinite: rows
    with Inf or NaN get the certificate "nonfinite" instead of a ValueError. threads: 0 is as many as
    there are. Returns a Routing; ValueError says what is wrong with an input."""
    options = {"exact_weights": check_flag("exact_weights", exact_weights),
               "without_blas": check_flag("without_blas", without_blas),
               "allow_nonfinite": check_flag("allow_nonfinite", allow_nonfinite),
               "threads": threads_of(threads)}
    taken = borrow({"hidden": hidden, "gate": gate_weight, "logits": logits, "bias": bias,
                    "gate_bias": gate_bias}, dtype)
    tokens, k = tokens_of(taken), check_router(router).top_k
    text = c_void_p()
    with router.open() as r, \
            Handle(library.mr_api_input_new, library.mr_api_input_free, r) as handle:
        hand_over(handle, taken)
        out = [np.empty((tokens, k), np.int32), np.empty((tokens, k))] + \
              [np.empty(tokens) for _ in range(4)] + [np.empty(tokens, np.uint8)]
        call(library.mr_api_route, handle, json.dumps(options).encode(), tokens,
             *(address(array) for array in out), byref(text))
    said = take_text(text.value)
    ties = tuple(Tie(t["token"], t["slots"], tuple(t["experts"]), t["group_slots"],
                     tuple(t["groups"])) for t in said["ties"])
    return Routing(*out, ties, said["ties_omitted"], said["certified"])
